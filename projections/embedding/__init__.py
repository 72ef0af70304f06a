"""Text into vectors: where they come from (the embedders) and how they are kept (the cache).

    open_embedder(spec) ─▶ Embedder            minilm · openai · fastembed
    CachedEmbedder(embedder, VectorCache(path)) each text embedded once per machine and model

Importing this is cheap: numpy, onnxruntime, onnx, tokenizers and filelock are imported when an
embedder is opened or a vector is first asked for.
"""

import os

from projections.embedding.cached import CachedEmbedder
from projections.embedding.embedder import Embedder, EmbedderSpec, open_embedder
from projections.embedding.store import VectorCache

__all__ = ["CachedEmbedder", "Embedder", "EmbedderSpec", "VectorCache", "open_embedder"]

# Since 1.29 onnxruntime reports to its maker over the network, unless this is set before it is first imported.
os.environ["ORT_DISABLE_TELEMETRY"] = "1"

# Its own threads are as many as there are processors, or it panics for good, and are never nice: `minilm` has others.
os.environ["TOKENIZERS_PARALLELISM"] = "false"
