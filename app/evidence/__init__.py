"""What proves one evaluation: a manifest, provenance, an SBOM, the events and every execution's files, in one archive.

`archive.build_archive` writes it, `check.check` reads it again without trust. Equal inputs give equal bytes, whoever
seals them: no clock, no randomness, no order but that of the data. `sbom` alone imports cyclonedx, and the API never
imports `sbom`.
"""
