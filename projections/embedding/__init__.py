"""Text into vectors: where they come from (the embedders) and how they are kept (the cache).

    open_embedder(spec) ─▶ Embedder            minilm · openai · fastembed · none
    CachedEmbedder(embedder, VectorCache(path)) each text embedded once per machine and model

Importing this is cheap: numpy, onnxruntime, onnx, tokenizers and filelock are imported when an
embedder is opened or a vector is first asked for.
"""

from projections.embedding.cached import CachedEmbedder
from projections.embedding.embedder import Embedder, EmbedderSpec, open_embedder
from projections.embedding.store import VectorCache

__all__ = ["CachedEmbedder", "Embedder", "EmbedderSpec", "VectorCache", "open_embedder"]
