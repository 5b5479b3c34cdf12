# ---
# jupyter:
#   jupytext:
#     text_representation: {extension: .py, format_name: percent}
# ---

# %% [markdown]
# # Compile your first function
#
# You name a function, a box and a tolerance ε. You get a softmax-attention network that is within ε of the function at
# *every* point of the box, and a certificate that proves it.

# %%
import numpy as np

import attnfun as af

net = af.compile("sin(3*x)", domain=(-1, 1), eps=1e-6)
net

# %% [markdown]
# The card says what was asked, how large the network is, and what is proved. The picture shows the keys, the weights of
# the keys over x, target and network on top of each other, and the error under its bound.
#
# ## Call it
#
# A number gives a number, an array gives an array.

# %%
print(net(0.5), np.sin(1.5))
X = np.linspace(-1, 1, 10_001)[:, None]
seen = np.abs(net(X).ravel() - np.sin(3 * X.ravel())).max()
print(f"largest error at {len(X):,} points: {seen:.3e}")

# %% [markdown]
# The certificate has two ends. The lower one is an error that was *seen* at a point. The upper one is *proved* for all
# points, rounding included. So what we saw just now cannot be above the upper end.

# %%
low, high = net.certificate.error
print(f"seen at a point {low:.3e}, proved for all points {high:.3e}, asked {net.certificate.eps:.0e}")
assert seen <= high

# %% [markdown]
# ## What attention does here
#
# One head reads x as a query. Its keys are constants: tangent lines of a convex function. The softmax weighs the keys,
# and the values come back as an average:
#
# $$\mathrm{head}(x) = \sum_j p_j(x)\, V_j, \qquad p_j(x) = \frac{e^{k_j q + b_j}}{\sum_i e^{k_i q + b_i}}.$$
#
# Nothing was learnt from data. `explain` says in words what was built and why.

# %%
print(net.explain())

# %% [markdown]
# The same average written by hand, from the numbers of the head, is the network but for the affine part that rides beside
# the head.

# %%
head = net.weights.layers[0].attention[0]
k, b, V = head.axes[0].slopes[:, 0], head.axes[0].biases, head.values[:, 0]
print("slopes", k.round(3), "biases", b.round(3), "values", V.round(3), sep="\n")
x = np.linspace(-1, 1, 5)
logits = x[:, None] * k + b
p = np.exp(logits - logits.max(1, keepdims=True))
rest = net(x[:, None]).ravel() - (p / p.sum(1, keepdims=True)) @ V
print("network less head:", rest.round(6), "   its second differences:", np.diff(rest, 2).round(12))

# %% [markdown]
# ## More variables
#
# With several variables the target is taken apart along its own expression. Each nonlinear step becomes a small head.

# %%
two = af.compile("sin(3*x) + cos(2*y)*exp(x*y)", domain={"x": (-1, 1), "y": (-1, 1)}, eps=1e-6)
print(two)
print(two(x=0.3, y=-0.5), np.sin(0.9) + np.cos(1.0) * np.exp(-0.15))

# %% [markdown]
# ## A smaller tolerance costs little

# %%
print("eps      keys  proved")
for eps in (1e-2, 1e-4, 1e-6, 1e-8, 1e-10):
    one = af.compile("sin(3*x)", domain=(-1, 1), eps=eps)
    print(f"{eps:.0e}  {one.cost.keys:4d}  {one.certificate.error[1]:.2e}")

# %% [markdown]
# ## What is refused
#
# A request that has no answer is refused in one sentence.

# %%
try:
    af.compile("1/x", domain=(-1, 1), eps=1e-3)
except af.AttnfunError as refusal:
    print(refusal)

# %% [markdown]
# ## Exercise
#
# Compile `abs(x)` on (−1, 1) for ε = 1e-2, 1e-4 and 1e-6. How does the number of keys grow? Look at
# `net.cost.max_value` and at the slopes of the keys in the picture too: what grows instead? Then try `sqrt(x)` on (0, 1).
