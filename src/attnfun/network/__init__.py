"""Head, Layer, Network: the weights and nothing else; evaluation; the literal form; the file."""

from attnfun.network.architecture import Architecture, AxisShape, HeadShape, TokenArchitecture, TokenLayerShape
from attnfun.network.evaluate import ROUTES, attention, evaluate, evaluate_head, head_routes, routes, stream
from attnfun.network.head import Axis, Head, rounded
from attnfun.network.key_windows import LocalAxis, LocalPlan, local_plan
from attnfun.network.labels import Label, Labels
from attnfun.network.literal import FORMS, Literal, literal, shut_out
from attnfun.network.network import Cost, Layer, Network, identical
from attnfun.network.plain import AnyPlain, HasPlain, Plain, PlainScores
from attnfun.network.relu import ReluBlock, evaluate_block
from attnfun.network.tokens import FeedForward, TokenHead, TokenLayer, TokenNetwork, TokenTransformer

__all__ = ["Axis", "Head", "ReluBlock", "Layer", "Network", "Cost", "Label", "Labels", "rounded", "identical"]
__all__ += ["Architecture", "AxisShape", "HeadShape", "TokenArchitecture", "TokenLayerShape"]
__all__ += ["evaluate", "evaluate_head", "evaluate_block", "stream", "attention", "ROUTES", "routes", "head_routes"]
__all__ += ["LocalAxis", "LocalPlan", "local_plan"]
__all__ += ["FORMS", "Literal", "literal", "shut_out"]
__all__ += ["AnyPlain", "HasPlain", "Plain", "PlainScores"]
__all__ += ["TokenHead", "TokenLayer", "TokenNetwork", "FeedForward", "TokenTransformer"]
