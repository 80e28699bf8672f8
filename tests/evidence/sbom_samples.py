"""An image with a package of every kind, as an SBOM is made of it."""

from app.evidence.sbom import SbomInputs
from app.images.packages import Inventory, Package
from tests.evidence import samples

PACKAGES = (
    Package("apk", "musl", "1.2.5-r0", "x86_64", "MIT AND custom:thing"),
    Package("deb", "libstdc++6", "12.2.0-14+deb12u1", "amd64"),
    Package("deb", "tar", "1:1.34~rc", "amd64"),
    Package("pypi", "requests", "2.32.0", "", "Apache-2.0"),
    Package("pypi", "weird", "1", "", "see the file"),
)
INVENTORY = Inventory("debian", "12", PACKAGES, ("sha256:" + "7" * 64,), "Debian GNU/Linux 12 (bookworm)")
INPUTS = SbomInputs(
    image=samples.IMAGE,
    inventory=INVENTORY,
    pack_digest="sha256:" + "5" * 64,
    agent=samples.AGENT,
    agent_digest="sha256:" + "6" * 64,
    harnesses=(samples.HARNESS,),
)
