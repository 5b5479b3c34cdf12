"""Whatever a sampler draws: the kind of `learn.SampledTask`, which is trained and never proved."""

from attnfun.kinds import Kind

KIND = Kind(
    "sampled",
    target="attnfun.learn.sampled:SampledTask",
    weights=("attnfun.network.tokens:TokenNetwork", "attnfun.network.tokens:TokenTransformer"),
    view="attnfun.kinds.sampled.view:SampledModel",
    words="attnfun.kinds.sampled.words",
    lesson="attnfun.kinds.sampled.lesson:lesson",
    subjects="attnfun.diagnosis.tokens:subjects",
    unproved="it was trained on a sampler: its error is sampled, and a sampler says nothing of what it does not draw",
)
