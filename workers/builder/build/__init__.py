"""Build backends: a pack's environment in, an image identified by digest out, or a typed failure.

`port` is the seam; `docker` builds with the container engine's BuildKit. Every backend passes
tests/conformance/build_backends.py.
"""
