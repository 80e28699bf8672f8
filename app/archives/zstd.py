"""The one place that knows where zstd comes from: the standard library since 3.14, its backport before."""

import sys

if sys.version_info >= (3, 14):
    from compression.zstd import (
        CompressionParameter,
        DecompressionParameter,
        ZstdCompressor,
        ZstdDecompressor,
        ZstdError,
    )
else:
    from backports.zstd import CompressionParameter, DecompressionParameter, ZstdCompressor, ZstdDecompressor, ZstdError

__all__ = ["CompressionParameter", "DecompressionParameter", "ZstdCompressor", "ZstdDecompressor", "ZstdError"]

LEVEL = 10
"""Of everything that we compress. Fixed, with one thread, because equal input shall give equal bytes."""

WINDOW_LOG_MAX = 27
"""128 MiB: what a hostile frame can make us allocate, and what `zstd --ultra -22` needs."""


def compressor() -> ZstdCompressor:
    return ZstdCompressor(
        options={
            CompressionParameter.compression_level: LEVEL,
            CompressionParameter.checksum_flag: 1,
            CompressionParameter.nb_workers: 0,
        }
    )


def decompressor() -> ZstdDecompressor:
    return ZstdDecompressor(options={DecompressionParameter.window_log_max: WINDOW_LOG_MAX})
