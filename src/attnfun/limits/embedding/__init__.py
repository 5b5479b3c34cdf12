"""The embedding dimension that a finite relevance relation needs, with certificates from above and below."""

from attnfun.limits.embedding.check import Obstruction, Ranking, check_embedding, check_obstruction
from attnfun.limits.embedding.dimension import EmbeddingDimension, Row, embed_dim
from attnfun.limits.embedding.files import load_embedding
from attnfun.limits.embedding.relevance import Relevance

__all__ = ["EmbeddingDimension", "Obstruction", "Ranking", "Relevance", "Row"]
__all__ += ["check_embedding", "check_obstruction", "embed_dim", "load_embedding"]
