# ---
# jupyter:
#   jupytext:
#     text_representation: {extension: .py, format_name: percent}
# ---

# %% [markdown]
# # Ground truth for interpretability
#
# A method of interpretability says "this head computes log m₁". Is that true? In a trained network nobody knows. Here you
# know: the network is built as a program, every head has a label, and the certificate is proved from these labels.
#
# The target is Newton's law, formula I.9.18 of the Feynman Lectures.

# %%
import numpy as np
import torch

import attnfun as af

law = "G*m1*m2/((x2-x1)**2 + (y2-y1)**2 + (z2-z1)**2)"
box = "G=1:2;m1=1:2;m2=1:2;x1=3:4;x2=1:2;y1=3:4;y2=1:2;z1=3:4;z2=1:2"
net = af.compile(law, domain=box, eps=1e-4)
hooked = net.to_hooked()  # a TransformerLens HookedRootModule
net

# %% [markdown]
# The answer key stands in `cfg`: the heads by layer, and the coordinates of the residual stream.

# %%
for layer, heads in enumerate(hooked.cfg.heads):
    print(f"layer {layer}:", *heads, sep="\n   ")

# %% [markdown]
# ## Patching: which head carries m₁?
#
# We forget the labels for a moment. Take pairs of inputs that differ in m₁ alone. Run the network on the first of each
# pair, but put the output of one head as it was for the second. If the result moves, that head carries m₁.

# %%
random = np.random.default_rng(0)
low, high = np.array([[1, 1, 1, 3, 1, 3, 1, 3, 1], [2, 2, 2, 4, 2, 4, 2, 4, 2]], dtype=float)
clean = random.uniform(low, high, (200, 9))
other = clean.copy()
other[:, 1] = random.uniform(1, 2, 200)  # column 1 is m1
X, Y = torch.tensor(clean), torch.tensor(other)
before, after = hooked(X), hooked(Y)
_, cache = hooked.run_with_cache(Y)


def patched(layer: int, head: int) -> torch.Tensor:
    def put(z, hook):
        z[:, :, head] = cache[hook.name][:, :, head]
        return z

    return hooked.run_with_hooks(X, fwd_hooks=[(f"blocks.{layer}.attn.hook_z", put)])


moves = {}
for head, name in enumerate(hooked.cfg.heads[0]):
    moves[name] = float((patched(0, head) - before).abs().mean() / (after - before).abs().mean())
    print(f"{name:14s} moves the output by {moves[name]:.4f} of the whole effect")
found = max(moves, key=moves.get)
print("found:", found)
assert found == "log(m1)" and all(move == 0 for name, move in moves.items() if name != found)

# %% [markdown]
# Patching finds the head, and no other head of the layer moves anything. But look at the number: it is far below 1. Does
# the head not compute log m₁ after all?
#
# The label tells. What the head writes is log m₁ − (a m₁ + b). The affine part a m₁ + b needs no attention; it rides in
# the residual stream. So the head carries the *curvature* of the logarithm, and the stream carries the rest.

# %%
label = next(one for one in net.weights.labels.coordinates if one.name == "log(m1)")
a, b = label.slope, label.offset
m = clean[:, 1]
wrote = hooked.run_with_cache(X)[1]["blocks.0.attn.hook_z"][:, 0, hooked.cfg.heads[0].index("log(m1)"), 0].numpy()
print(
    f"a = {a:.4f}, b = {b:.4f}; largest |head - (log m1 - a m1 - b)| = {np.abs(wrote - (np.log(m) - a * m - b)).max():.1e}"
)

# %% [markdown]
# So the effect of the patch can be predicted, point by point, from the program alone: the output is multiplied by
# exp(r(m₁′) − r(m₁)), where r(m) = log m − a m − b.


# %%
def r(m: np.ndarray) -> np.ndarray:
    return np.log(m) - a * m - b


predicted = before.numpy() * np.exp(r(other[:, 1]) - r(m))
seen = patched(0, hooked.cfg.heads[0].index("log(m1)")).numpy()
print(
    f"largest |predicted - seen| = {np.abs(predicted - seen).max():.1e}, where patching moves by up to "
    f"{np.abs(seen - before.numpy()).max():.1e}"
)
assert np.abs(predicted - seen).max() < 1e-3

# %% [markdown]
# ## Ablation says the same
#
# Without the head the program has a m₁ + b in the place of log m₁.


# %%
def without(z, hook):
    z[:, :, hooked.cfg.heads[0].index("log(m1)")] = 0
    return z


ablated = hooked.run_with_hooks(X, fwd_hooks=[("blocks.0.attn.hook_z", without)]).numpy()
program = before.numpy() / m * np.exp(a * m + b)
print(f"largest |ablated - program without the head| = {np.abs(ablated - program).max():.1e}")

# %% [markdown]
# ## A probe that is wrong
#
# A popular question is "where can log m₁ be read off linearly?". We fit a line from each head's output to log m₁, and from
# the input m₁ itself, which is a coordinate of the stream.

# %%
many = random.uniform(low, high, (2000, 9))
_, seen_by = hooked.run_with_cache(torch.tensor(many))
z = seen_by["blocks.0.attn.hook_z"][:, 0, :, 0].numpy()


def explained(column: np.ndarray, wanted: np.ndarray) -> float:
    return float(np.corrcoef(column, wanted)[0, 1] ** 2)


wanted = np.log(many[:, 1])
probe = {f"head {name}": explained(z[:, place], wanted) for place, name in enumerate(hooked.cfg.heads[0])}
probe["stream m1"] = explained(many[:, 1], wanted)
for name, share in probe.items():
    print(f"{name:20s} R² = {share:.3f}")
assert max(probe, key=probe.get) == "stream m1"

# %% [markdown]
# The probe prefers the raw input m₁, because a logarithm over one octave is almost a line, and it sees little in the one
# head that makes the logarithm. The probe measures what is *decodable*, and not what is *computed*. Patching was right,
# once its number was read with the skip connection in mind. On a network with ground truth you can tell.
#
# ## The pattern of a head
#
# The head is a softmax over a few constant keys: tangent lines. Each key has its stretch of m₁.

# %%
place = hooked.cfg.heads[0].index("log(m1)")
line = np.repeat([low / 2 + high / 2], 5, 0)
line[:, 1] = np.linspace(1, 2, 5)
_, along = hooked.run_with_cache(torch.tensor(line))
pattern = along["blocks.0.attn.hook_pattern"][:, place, 0].numpy()
for m1, weights in zip(line[:, 1], pattern, strict=True):
    print(f"m1 = {m1:.2f}:", *(f"{weight:.2f}" for weight in weights))

# %% [markdown]
# ## Exercise
#
# Which head carries x₁? Make pairs that differ in x₁ alone, patch layer 0, and compare with the labels. Then do the same
# for layer 1, and explain why patching it moves the output although its label does not name x₁ alone. What happens with
# pairs that differ in m₁ *and* in m₂?
