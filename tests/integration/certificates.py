"""Certificates made with openssl: an authority, and what it signs; a sidecar with the mutual-TLS door of the control API."""
import shutil
import subprocess

from harness import WATCHDOG_S, free_port


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


class TlsDoor:
    """A sidecar with the TLS door; what its clients are signed by (clients), and what signed its own (servers)."""

    def __init__(self, place):
        self.directory = place.directory / "certificates"
        self.directory.mkdir()
        self.clients, self.servers = Authority(self.directory, "clients"), Authority(self.directory, "servers")
        cert, key = self.servers.sign("spillway", "IP:127.0.0.1,DNS:spillway.pod")
        self.cert, self.key, self.ca = (self.directory / n for n in ("tls.crt", "tls.key", "ca.crt"))
        self.install(cert, key, self.clients.cert)
        self.port = free_port()
        self.sidecar = place.sidecar("http://127.0.0.1:1", config={"listen": {"control_tls": {
            "address": f"127.0.0.1:{self.port}", "cert_file": str(self.cert), "key_file": str(self.key),
            "client_ca_file": str(self.ca),
            "roles": {"viewer": "read", "on-call.example": "operate", "spiffe://shop/admin": "admin"}}}})

    def install(self, cert, key, ca):
        """As a mounted Secret is swapped: a rename over the name."""
        for source, target in ((cert, self.cert), (key, self.key), (ca, self.ca)):
            fresh = target.with_suffix(".fresh")
            shutil.copy(source, fresh)
            fresh.rename(target)

    def channel(self, client=None, servers=None):
        import grpc
        cert, key = client or (None, None)
        credentials = grpc.ssl_channel_credentials(
            (servers or self.servers).cert.read_bytes(), key and key.read_bytes(), cert and cert.read_bytes())
        return grpc.secure_channel(f"127.0.0.1:{self.port}", credentials)
