"""Certificates made with openssl: an authority, and what it signs."""
import subprocess

from harness import WATCHDOG_S


def openssl(*words):
    subprocess.run(["openssl", *map(str, words)], check=True, capture_output=True, timeout=WATCHDOG_S)


class Authority:
    def __init__(self, directory, name):
        self.directory, self.name = directory, name
        self.cert, self.key = directory / f"{name}.crt", directory / f"{name}.key"
        openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", self.key,
                "-out", self.cert, "-days", "2", "-subj", f"/CN={name}")

    def sign(self, name, san=None, days=2):
        """(certificate, key) files of a new certificate; a negative number of days is an expired one."""
        base = self.directory / f"{self.name}-{name}"
        key, request, cert = base.with_suffix(".key"), base.with_suffix(".csr"), base.with_suffix(".crt")
        openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", key, "-out", request,
                "-subj", f"/CN={name}")
        extension = base.with_suffix(".ext")
        extension.write_text(f"subjectAltName={san}\n" if san else "basicConstraints=CA:FALSE\n")
        openssl("x509", "-req", "-in", request, "-CA", self.cert, "-CAkey", self.key, "-CAcreateserial", "-out", cert,
                "-days", days, "-extfile", extension)
        return cert, key
