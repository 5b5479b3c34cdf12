"""Whatever a sampler draws: the kind of `learn.SampledTask`, which is trained and never proved."""

from attnfun.kinds import TOKENS, Kind

KIND = Kind(
    "sampled",
    target="attnfun.learn.sampled:SampledTask",
    weights=TOKENS,
    view="attnfun.model:TokenModel",
    words="attnfun.network.words",
    lesson="attnfun.kinds.sampled.lesson:lesson",
    subjects="attnfun.diagnosis.plain:of_tokens",
    unproved="it was trained on a sampler: its error is sampled, and a sampler says nothing of what it does not draw",
)
