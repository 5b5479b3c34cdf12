# ---
# jupyter:
#   jupytext:
#     text_representation: {extension: .py, format_name: percent}
# ---

# %% [markdown]
# # Gallery
#
# Thirty targets. Each was built, proved and drawn by the three lines above its picture when this page was made.

# %%
import attnfun as af

# %% [markdown]
# ## One variable

# %% [markdown]
# ### A sine
#
# Ten keys are enough for nine digits.

# %%
net = af.compile("sin(3*x)", domain=(-1, 1), eps=1e-9)
print(net)
net.plot()

# %% [markdown]
# ### Runge's function
#
# Equispaced polynomials fail here; bells of varying width do not.

# %%
net = af.compile("1/(1 + 25*x**2)", domain=(-1, 1), eps=1e-6)
print(net)
net.plot()

# %% [markdown]
# ### A fast sine
#
# About two keys for each half wave.

# %%
net = af.compile("sin(20*x)", domain=(-1, 1), eps=1e-6)
print(net)
net.plot()

# %% [markdown]
# ### A wave packet
#
# One head holds the whole product.

# %%
net = af.compile("exp(-x**2)*cos(8*x)", domain=(-2, 2), eps=1e-5)
print(net)
net.plot()

# %% [markdown]
# ### A logarithm over six decades
#
# Geometric keys: a ladder.

# %%
net = af.compile("log(x)", domain=(1e-6, 1), eps=1e-6)
print(net)
net.plot()

# %% [markdown]
# ### A steep tanh
#
# Two keys are a tanh exactly.

# %%
net = af.compile("tanh(50*x)", domain=(-1, 1), eps=1e-6)
print(net)
net.plot()

# %% [markdown]
# ### sin(x)/x
#
# 0/0 at x = 0: the target is its continuous extension.

# %%
net = af.compile("sin(x)/x", domain=(-10, 10), eps=1e-5)
print(net)
net.plot()

# %% [markdown]
# ## Kinks and roots

# %% [markdown]
# ### An absolute value
#
# The slope jumps at 0, and four keys are enough.

# %%
net = af.compile("abs(x)", domain=(-1, 1), eps=1e-6)
print(net)
net.plot()

# %% [markdown]
# ### A square root at 0
#
# The slope is infinite at 0.

# %%
net = af.compile("sqrt(x)", domain=(0, 1), eps=1e-6)
print(net)
net.plot()

# %% [markdown]
# ### A truncated line
#
# Two kinks.

# %%
net = af.compile("min(max(x, -0.5), 0.5)", domain=(-1, 1), eps=1e-4)
print(net)
net.plot()

# %% [markdown]
# ### A rectified sine
#
# A kink at each root of the sine.

# %%
net = af.compile("abs(sin(5*x))", domain=(-1, 1), eps=1e-4)
print(net)
net.plot()

# %% [markdown]
# ### A distance
#
# A cone: its tip is a root of 0.

# %%
net = af.compile("sqrt(x**2 + y**2)", domain="x=-1:1;y=-1:1", eps=1e-3)
print(net)
net.plot()

# %% [markdown]
# ### A maximum
#
# max(x, y) = y + relu(x - y).

# %%
net = af.compile("max(x, y)", domain="x=-1:1;y=-1:1", eps=1e-5)
print(net)
net.plot()

# %% [markdown]
# ## Two variables and more

# %% [markdown]
# ### One head, a polynomial
#
# Softmax weights as a polynomial basis.

# %%
net = af.compile("sin(3*x) + cos(2*y)*exp(x*y)", domain="x=-1:1;y=-1:1", eps=1e-4, method="bernstein")
print(net)
net.plot()

# %% [markdown]
# ### The same as a program
#
# Six small heads in two layers.

# %%
net = af.compile("sin(3*x) + cos(2*y)*exp(x*y)", domain="x=-1:1;y=-1:1", eps=1e-6)
print(net)
net.plot()

# %% [markdown]
# ### Franke's function
#
# The surface that everyone fits.

# %%
net = af.compile(
    "0.75*exp(-((9*x-2)**2 + (9*y-2)**2)/4) + 0.75*exp(-(9*x+1)**2/49 - (9*y+1)/10)"
    " + 0.5*exp(-((9*x-7)**2 + (9*y-3)**2)/4) - 0.2*exp(-(9*x-4)**2 - (9*y-7)**2)",
    domain="x=0:1;y=0:1",
    eps=1e-4,
)
print(net)
net.plot()

# %% [markdown]
# ### A table of cells
#
# A partition: attention as a look-up.

# %%
net = af.compile("sin(x) + cos(y)", domain="x=-1:1;y=-1:1", eps=0.2, method="partition")
print(net)
net.plot()

# %% [markdown]
# ### Feynman I.9.18: gravitation
#
# Nine variables: logs, squares, a log and an exp.

# %%
net = af.compile(
    "G*m1*m2/((x2-x1)**2 + (y2-y1)**2 + (z2-z1)**2)",
    domain="G=1:2;m1=1:2;m2=1:2;x1=3:4;x2=1:2;y1=3:4;y2=1:2;z1=3:4;z2=1:2",
    eps=1e-5,
)
print(net)
net.plot()

# %% [markdown]
# ### A circle
#
# Two outputs, side by side in one layer.

# %%
net = af.compile(["cos(t)", "sin(t)"], domain={"t": (-3.14, 3.14)}, eps=1e-5)
print(net)
net.plot()

# %% [markdown]
# ## Other norms, other arithmetic

# %% [markdown]
# ### A jump, in L1
#
# No continuous network is near it in the sup norm; in L1 one is.

# %%
net = af.compile("sign(x)", domain=(-1, 1), eps=0.01, norm=1)
print(net)
net.plot()

# %% [markdown]
# ### A kink, in L2
#
# The mean square of the error counts.

# %%
net = af.compile("abs(x - 1/3)", domain=(-1, 1), eps=1e-4, norm=2)
print(net)
net.plot()

# %% [markdown]
# ### In float32
#
# Built for float32, and proved for float32.

# %%
net = af.compile("exp(-x)*sin(4*x)", domain=(-1, 1), eps=1e-4, dtype="float32")
print(net)
net.plot()

# %% [markdown]
# ### As an MLP
#
# The same program with ReLU units in place of heads.

# %%
net = af.compile("sin(3*x)*y", domain="x=-1:1;y=-1:1", eps=0.01, realise="mlp")
print(net)
net.plot()

# %% [markdown]
# ## Sequences and sets

# %% [markdown]
# ### Every token and the mean
#
# One layer gathers, one applies.

# %%
net = af.sequence("sin(x*mean(x))", tokens=6, domain={"x": (-1, 1)}, eps=1e-4)
print(net)
net.plot()

# %% [markdown]
# ### How far from the largest
#
# A sharp head finds the maximum.

# %%
net = af.sequence("max(x) - x", tokens=8, domain={"x": (-1, 1)}, eps=1e-3)
print(net)
net.plot()

# %% [markdown]
# ### A function of a set
#
# Sums over pairs that sums over elements replace.

# %%
net = af.set_function("sum(x**2) + sum(x[i]*x[j])", points=6, domain={"x": (-1, 1)}, eps=1e-4)
print(net)
net.plot()

# %% [markdown]
# ## Relations, retrieval, regression

# %% [markdown]
# ### A Gaussian relation
#
# Two towers, and the rank that they need.

# %%
net = af.relation(
    "exp(-2*((x1-y1)**2 + (x2-y2)**2))", left="x1=0:1;x2=0:1", right="y1=0:1;y2=0:1", eps=1e-3, symmetric=True
)
print(net)
net.plot()

# %% [markdown]
# ### Retrieval
#
# The best of five keys, with its regret proved.

# %%
net = af.retrieve(
    "exp(-2*((x1-y1)**2 + (x2-y2)**2))",
    left="x1=0:1;x2=0:1",
    right="y1=0:1;y2=0:1",
    keys=[[0.1, 0.2], [0.8, 0.1], [0.5, 0.6], [0.2, 0.9], [0.9, 0.8]],
    eps=1e-4,
    symmetric=True,
)
print(net)
net.plot()

# %% [markdown]
# ### The furthest of three points
#
# Each of four points on the sphere looks for the one that is furthest from it.

# %%
net = af.neighbours(8, points=4, eps=0.05)
print(net)
net.plot()

# %% [markdown]
# ### Ridge regression in context
#
# The prompt holds the data; the layers solve it.

# %%
net = af.in_context("ridge", dim=2, examples=12, alpha=1.0, eps=1e-2)
print(net)
net.plot()
