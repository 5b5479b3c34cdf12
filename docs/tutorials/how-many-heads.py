# ---
# jupyter:
#   jupytext:
#     text_representation: {extension: .py, format_name: percent}
# ---

# %% [markdown]
# # How many heads, which rank, which dimension
#
# "Many thin heads or few fat ones?" has no answer in general. For a named task it has one, with proofs on both sides.
# Take a plain question: which of 15 points is furthest from the query? The tokens have 64 dimensions, and an error of
# 0.1 is allowed.

# %%
import numpy as np

import attnfun as af

plan = af.plan("furthest-neighbour", dim=64, context=16, eps=0.1)
print(plan.answer)
plan.plot()

# %% [markdown]
# Every cell of the picture is a pair of rank and heads. Some are *impossible*, by proof. Some are *constructed*: there is
# a network. For the rest nobody knows.

# %%
print(plan.counts)
print(plan.nearest)

# %% [markdown]
# ## Why thin heads fail
#
# Take the smallest case, two points: the further one is told by a sign, sign⟨z, y⟩ for z along their difference and
# y the query. A head of rank 8 sees an 8-dimensional shadow of z. So it sees only some of the harmonics that the target is
# made of, and the energy in the others is lost. This holds however the heads were trained.

# %%
print("heads of rank 8   the error is at least")
for heads in (1, 16, 256, 4096):
    print(f"{heads:13d}   {af.bounds.rank(dim=64, rank=8, heads=heads).lower:.3f}")

bound = af.bounds.rank(dim=64, rank=8, heads=16, eps=0.1)
print(
    f"an error of 0.1 needs at least {bound.heads_needed:.1e} heads of rank 8; {bound.heads_sufficient:.1e} are enough"
)
for hypothesis in bound.hypotheses:
    print("it rests on:", hypothesis)

# %% [markdown]
# One head of full rank does it. The network is built, and measured beside what is predicted.

# %%
fat = af.neighbours(64, 16, method="full_rank", eps=0.1)
print(fat)
print(fat.predicted)
print(fat.measured(4000, seed=0))

# %% [markdown]
# ## Which rank do given scores need?
#
# You have a matrix of scores that a head should give. How small can the rank be if every entry may be off by ε? The
# answer is an interval: the upper end is a factorisation, the lower end a proof.

# %%
t = np.linspace(-1, 1, 60)
scores = np.exp(np.outer(t, t))
print("eps      rank at least   at most")
for eps in (1e-1, 1e-2, 1e-4, 1e-8):
    answer = af.rank_of(scores, eps)
    print(f"{eps:.0e} {answer.lower:10d} {answer.rank:12d}")

# %% [markdown]
# The rank grows with ln(1/ε), because the relation e^{xy} is analytic. One with a kink is dearer.

# %%
kinked = np.abs(np.subtract.outer(t, t))
for eps in (1e-1, 1e-2):
    answer = af.rank_of(kinked, eps)
    print(f"|x - y| at {eps:.0e}: {answer.lower} to {answer.rank}")

# %% [markdown]
# ## Which dimension does a relevance table need?
#
# Queries and documents become vectors; a query must score its relevant documents above all others. Here each of six
# queries wants two neighbours on a ring of six documents.

# %%
ring = {f"q{k}": [f"d{k}", f"d{(k + 1) % 6}"] for k in range(6)}
table = af.embed_dim(ring)
print(
    f"between {table.lower} and {table.upper} dimensions; margin {table.margin:.3f} with {table.bits} bits per coordinate"
)
print("why not fewer:", table.obstruction.sentence)

# %% [markdown]
# All pairs of six documents are harder.

# %%
pairs = {f"{i}{j}": [f"d{i}", f"d{j}"] for i in range(6) for j in range(i)}
table = af.embed_dim(pairs)
print(f"between {table.lower} and {table.upper} dimensions")
print("why not fewer:", table.obstruction.sentence)

# %% [markdown]
# ## Exercise
#
# Ask `af.plan("matching", dim=64, context=16, order=2)`. Why is the answer rank 2 there, and full rank here? Then find the number of
# documents from which all pairs need four dimensions: `af.embed_dim` on 3, 4, 5, … documents.
