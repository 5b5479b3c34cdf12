"""What nnsight sees and changes, in a process of its own: importing nnsight gives every Python object a `save`."""

import nnsight
import numpy as np
import torch

import attnfun as af
from attnfun.network import TokenTransformer
from attnfun.network.tokens import FeedForward
from network.test_tokens import random_tokens

rng = np.random.default_rng(0)
net = af.compile("x*y*sqrt(x+y)", {"x": (1, 3), "y": (1, 3)}, eps=1e-4, method="compose")
module = net.to_torch()
X = torch.tensor(rng.uniform(1, 3, (20, 2)))
traced = nnsight.NNsight(module)

with traced.trace(X):
    seen = traced.layers[0].heads.log_x.output.save()
    stream = traced.layers[0].output.save()
    plain = traced.output.save()
place = net.weights.coordinates.index("log(x)")
assert seen.shape == (1, 20, 1), seen.shape
assert torch.equal(seen[..., 0], stream[..., place]) and torch.equal(plain, module(X))

with traced.trace(X):
    traced.layers[0].heads.log_x.output = torch.zeros_like(traced.layers[0].heads.log_x.output)
    patched = traced.output.save()
zeroed = net.to_torch()
zeroed.layers[0].heads.log_x.v.zero_()
assert torch.allclose(patched, zeroed(X), rtol=0, atol=1e-12) and not torch.allclose(patched, plain)

attention = random_tokens(1)
units = FeedForward(rng.normal(size=(5, 3)), rng.normal(size=3), rng.normal(size=(3, 5)))
tokens = TokenTransformer(attention, (None, units, None)).to_torch()
traced = nnsight.NNsight(tokens)
Z = torch.tensor(rng.normal(size=(2, 4, 5)))
with traced.trace(Z):
    one, two = traced.layers[0].heads.a.output.save(), traced.layers[0].heads.b.output.save()
    traced.layers[1].units.output = 0 * traced.layers[1].units.output
    without = traced.output.save()
assert one.shape == (2, 7, 1) and two.shape == (2, 7, 2)  # three constant tokens behind four
assert torch.allclose(without, attention.to_torch()(Z), rtol=0, atol=1e-12)
print("traced")
