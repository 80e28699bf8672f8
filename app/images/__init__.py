"""Container images as text and as bytes: references, Dockerfiles, and the packages in an image's layers.

Nothing here talks to an engine or a registry, and nothing is unpacked to disk: bytes come in as a stream.
"""
