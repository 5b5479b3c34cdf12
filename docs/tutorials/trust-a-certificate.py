# ---
# jupyter:
#   jupytext:
#     text_representation: {extension: .py, format_name: percent}
# ---

# %% [markdown]
# # Trust a certificate
#
# Somebody hands you a file and says "this network is within 1e-6". You do not have to believe it.

# %%
import numpy as np

import attnfun as af

net = af.compile("exp(-x**2)*cos(3*x)", domain=(-2, 2), eps=1e-6)
net.save("f.safetensors")

checked = af.verify("f.safetensors", "exp(-x**2)*cos(3*x)", eps=1e-6)
print(checked.status, checked.error)

# %% [markdown]
# `verify` reads weights, target and ε, and proves the bound again. It reads no number of the certificate in the file, and
# it runs no code that builds networks. You say what you expect: the target and ε. A file about something else is refused.

# %%
try:
    af.verify("f.safetensors", "sin(x)", eps=1e-6)
except af.AttnfunError as refusal:
    print(refusal)

# %% [markdown]
# ## What a certificate says
#
# | status | what it says |
# | --- | --- |
# | `proved` | the error is at most ε at every point of the domain, rounding included |
# | `refuted` | a point was found where the error is above ε |
# | `undecided` | neither was shown |
# | `sampled` | measured only; never called a bound |
#
# The [page on certificates](../certificates.md) has the others.

# %%
print(checked.sentence)
for hypothesis in checked.hypotheses:
    print("it rests on:", hypothesis)

# %% [markdown]
# ## Two numbers that cannot cross
#
# The lower end is the error at one point, in ball arithmetic. The upper end comes from different code. If sampling ever
# shows more than the upper end, a proof is wrong. Let us try hard.

# %%
random = np.random.default_rng(0)
X = random.uniform(-2, 2, (1_000_000, 1))
x = X.ravel()
seen = np.abs(net(X) - np.exp(-(x**2)) * np.cos(3 * x)).max()
low, high = checked.error
print(f"a million points: {seen:.4e}   proved: {high:.4e}   slack of the proof: {high / low:.2f}")
assert seen <= high

# %% [markdown]
# ## A question that is too strict is refuted
#
# The network is not within a tenth of its own error. Then there is a point that shows it, and the certificate names it.

# %%
strict = af.verify("f.safetensors", eps=low / 10)
print(strict.status, strict.witness)

# %% [markdown]
# ## Why sampling is not a proof
#
# This target has a narrow spike. Twenty points do not meet it, and the zero network looks perfect there.

# %%
spike = "exp(-(100*(x - 0.123456))**2)"
at = np.linspace(-1, 1, 20)
print(f"largest value at 20 points: {np.exp(-((100 * (at - 0.123456)) ** 2)).max():.1e}; its true maximum is 1")
found = af.compile(spike, domain=(-1, 1), eps=1e-4)
print(found.certificate.sentence)
print(found(0.123456))

# %% [markdown]
# ## A damaged file
#
# One bit is turned over in the middle of the file. The hash over weights, target and claim tells.

# %%
with open("f.safetensors", "rb") as file:
    damaged = bytearray(file.read())
damaged[-5] ^= 1
with open("damaged.safetensors", "wb") as file:
    file.write(damaged)
try:
    af.verify("damaged.safetensors")
except af.DamagedFile as refusal:
    print(refusal)

# %% [markdown]
# The hash is no signature. Whoever changes the weights and makes the hash fit has made another file, and `verify` proves
# or refutes that one.
#
# ## Exercise
#
# Train a network of the same shape with `af.train(net, steps=200)` and save it. Which status does
# `af.verify` give it without `eps`? Which is the smallest `eps` for which it is `proved`, and for which largest one
# is it `refuted`?
