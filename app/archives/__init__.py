"""Archives of strangers, read without trust; and our own, written so that equal content gives equal bytes.

In come a file (tar, plain or compressed by gzip or zstd, or zip) and limits; out come a `PackListing` with the digest of
the content, or `ArchiveRefused` with a code and the member's name. Only regular files and folders are taken: no links, no
devices, no path that could land elsewhere. Everything blocks: callers use `asyncio.to_thread`. The command line imports
`folder` on every push, so nothing here imports anything heavy.
"""
