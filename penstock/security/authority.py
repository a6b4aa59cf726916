"""The operator's own small certificate authority, for ``penstock ca``.

Its directory is readable by its owner alone. It holds ``ca.pem`` (to copy to every host), ``ca.key`` (to copy nowhere),
and ``issued/NAME.pem`` and ``issued/NAME.key`` for each issued name. ``crl.pem`` (to copy to every host) lists revoked
certificates; ``former/NAME/SERIAL.pem`` are renewed or revoked certificates. Keys are ECDSA on P-256. The key usage in
a certificate limits it: a node's certificate may authenticate to the master and serve pages; a master's may only serve,
and cannot pass for a node's.
"""

from __future__ import annotations

import datetime as dt
import ipaddress
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from penstock.durable import replace_file

#: Names become file names, so no other characters are allowed.
_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,126}[A-Za-z0-9])?\Z")
_ADDRESS = re.compile(r"[0-9A-Fa-f.:]+\Z")
#: Certificates are valid from this time before now, so that differences between hosts' clocks do no harm.
_SKEW = dt.timedelta(hours=1)
_MOST_COMMON_NAME = 64  # X.520's ub-common-name


class AuthorityError(Exception):
    """A failed operation of the authority: one line that names the file or name, and the remedy."""


class NotIssuedError(AuthorityError):
    """No certificate was issued for that name."""


@dataclass(frozen=True, slots=True)
class Issued:
    """A certificate: its ``names`` (the first is ``name``), its kind (``master`` or node), and its validity."""

    name: str
    names: tuple[str, ...]
    master: bool
    since: dt.datetime
    until: dt.datetime
    certificate: Path
    key: Path

    def left_days(self, now: dt.datetime) -> float:
        """Return the days until it expires; below 0: it has expired."""
        return (self.until - now) / dt.timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Revoked:
    """A revoked certificate. ``name`` is empty if its file is missing."""

    name: str
    serial: int
    at: dt.datetime


class Authority:
    """The authority of one directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.certificate = directory / "ca.pem"
        self._key = directory / "ca.key"
        self.revocations = directory / "crl.pem"
        self._issued = directory / "issued"
        self._former = directory / "former"

    def init(self, title: str, days: int, now: dt.datetime) -> None:
        """Create the authority itself; existing files are never overwritten.

        Raises:
            AuthorityError: there is an authority already, or the directory cannot be written.
        """
        if self.certificate.exists() or self._key.exists():
            raise AuthorityError(f"{self.directory}: an authority is there already; name another --directory")
        if not 0 < len(title) <= _MOST_COMMON_NAME:
            raise AuthorityError(f"--title: {title[:80]!r} is not 1 to {_MOST_COMMON_NAME} characters")
        until = _after(now, days)
        try:
            self._issued.mkdir(mode=0o700, parents=True, exist_ok=True)
            self.directory.chmod(0o700)
        except OSError as error:
            raise _unwritable(self.directory, error) from None
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, title)])
        own = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
        made = (
            _builder(subject, subject, key, now, until)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_usage(signs_certificates=True), critical=True)
            .add_extension(own, critical=False)
            .sign(key, hashes.SHA256())
        )
        _write(self._key, _pem(key), 0o600)
        _write(self.certificate, made.public_bytes(serialization.Encoding.PEM), 0o644)
        self._write_list([], now)

    def issue(self, name: str, also: Sequence[str], days: int, now: dt.datetime, *, master: bool) -> Issued:
        """Create a key and a certificate for a host; it expires with the authority at the latest.

        Raises:
            AuthorityError: the name is invalid, or was issued already.
        """
        name = self._filed(name)
        names = tuple(dict.fromkeys([name, *map(_checked, also)]))
        if self._paths(name)[0].exists():
            raise AuthorityError(f"{name}: was issued already; `penstock ca renew {name}` makes it anew")
        return self._sign(name, names, days, now, master=master)

    def renew(self, name: str, now: dt.datetime, days: int | None = None) -> Issued:
        """Create a new key and certificate for the same names, valid for ``days``, or for as long as before.

        Raises:
            AuthorityError: the name was never issued.
        """
        former = self.find(name)
        length = days or max(1, round((former.until - former.since - _SKEW) / dt.timedelta(days=1)))
        self._keep_former(former.name)
        return self._sign(former.name, former.names, length, now, master=former.master)

    def revoke(self, name: str, now: dt.datetime) -> list[Revoked]:
        """Add all certificates ever issued for this name to the list, :attr:`revocations`. The name may be issued anew.

        Raises:
            AuthorityError: the name was never issued, or all of its certificates are revoked already.
        """
        name = self._filed(name)
        certificate, key = self._paths(name)
        former = sorted((self._former / name).glob("*.pem"))
        known = self.revoked()
        listed = {one.serial for one in known}
        serials = {_serial(file) for file in (*former, certificate) if file.exists()}
        if not serials:
            raise NotIssuedError(f"{name}: was not issued here; `penstock ca show` lists what was")
        fresh = [Revoked(name, serial, now) for serial in sorted(serials - listed)]
        if not fresh:
            raise AuthorityError(f"{name}: is revoked already; {self.revocations} has it")
        self._write_list([*known, *fresh], now)
        if certificate.exists():
            self._keep_former(name)
            certificate.unlink()
            key.unlink(missing_ok=True)
        return fresh

    def revoked(self) -> list[Revoked]:
        """Return the revoked certificates, in the order of revocation.

        Raises:
            AuthorityError: there is no authority, or its list cannot be read.
        """
        listed = self._load_list()
        owners = {_serial(file): file.parent.name for file in self._former.glob("*/*.pem")}
        return [
            Revoked(owners.get(one.serial_number, ""), one.serial_number, one.revocation_date_utc)
            for one in listed or ()
        ]

    def find(self, name: str) -> Issued:
        """Return the certificate of this name. Raises AuthorityError if it was never issued."""
        name = self._filed(name)
        certificate, key = self._paths(name)
        if not certificate.exists():
            raise NotIssuedError(f"{name}: was not issued here; `penstock ca issue {name}`")
        return _describe(certificate, key)

    def issued(self) -> Iterator[Issued]:
        """Return all issued certificates, by name.

        Raises:
            AuthorityError: there is no authority, or a file is no certificate.
        """
        self._load()
        for certificate in sorted(self._issued.glob("*.pem")):
            yield _describe(certificate, certificate.with_suffix(".key"))

    def until(self) -> dt.datetime:
        """Return the time when the authority itself expires.

        Raises:
            AuthorityError: there is no authority.
        """
        return self._load()[0].not_valid_after_utc

    # ------------------------------------------------------------ inside

    def _keep_former(self, name: str) -> None:
        """Keep a certificate that is replaced: copies of it remain valid, so it may have to be revoked later."""
        certificate = self._paths(name)[0]
        kept = self._former / name / f"{_serial(certificate):x}.pem"
        try:
            kept.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            _write(kept, certificate.read_bytes(), 0o644)
        except OSError as error:
            raise _unwritable(kept, error) from None

    def _load_list(self) -> x509.CertificateRevocationList | None:
        authority, _ = self._load()
        try:
            found = x509.load_pem_x509_crl(self.revocations.read_bytes())
        except FileNotFoundError:
            return None  # an authority made by a version without revocation lists
        except (OSError, ValueError) as error:
            raise AuthorityError(f"{self.revocations}: {getattr(error, 'strerror', None) or error}") from None
        key = authority.public_key()
        assert isinstance(key, ec.EllipticCurvePublicKey)  # the type of its private key was checked on loading
        if not found.is_signature_valid(key):
            raise AuthorityError(f"{self.revocations}: is not signed by {self.certificate}")
        return found

    def _write_list(self, revoked: Sequence[Revoked], now: dt.datetime) -> None:
        """Write the list, valid as long as the authority: operators copy it by hand, and expiry would cut off hosts."""
        authority, signing = self._load()
        former = self._load_list()
        number = former.extensions.get_extension_for_class(x509.CRLNumber).value.crl_number if former else 0
        builder = (
            x509.CertificateRevocationListBuilder()
            .issuer_name(authority.subject)
            .last_update(now - _SKEW)
            .next_update(authority.not_valid_after_utc)
            .add_extension(x509.CRLNumber(number + 1), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signing.public_key()), critical=False)
        )
        for one in revoked:
            entry = x509.RevokedCertificateBuilder().serial_number(one.serial).revocation_date(one.at)
            builder = builder.add_revoked_certificate(entry.build())
        _write(self.revocations, builder.sign(signing, hashes.SHA256()).public_bytes(serialization.Encoding.PEM), 0o644)

    def _filed(self, name: str) -> str:
        """Return the name in its files: an address is in its canonical form, except in files of earlier versions.

        Raises: AuthorityError: it is no name.
        """
        canonical = _checked(name)
        return name if self._paths(name)[0].exists() else canonical

    def _paths(self, name: str) -> tuple[Path, Path]:
        return self._issued / f"{name}.pem", self._issued / f"{name}.key"

    def _load(self) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
        try:
            certificate = x509.load_pem_x509_certificate(self.certificate.read_bytes())
            key = serialization.load_pem_private_key(self._key.read_bytes(), None)
        except FileNotFoundError:
            raise AuthorityError(f"{self.directory}: there is no authority; `penstock ca init` makes one") from None
        except OSError as error:
            raise AuthorityError(f"{error.filename}: {error.strerror}") from None
        except (ValueError, TypeError) as error:
            raise AuthorityError(f"{self.directory}: ca.pem or ca.key cannot be read: {error}") from None
        if not isinstance(key, ec.EllipticCurvePrivateKey):
            raise AuthorityError(f"{self._key}: not a key that `penstock ca init` made")
        return certificate, key

    def _sign(self, name: str, names: tuple[str, ...], days: int, now: dt.datetime, *, master: bool) -> Issued:
        authority, signing = self._load()
        until = min(_after(now, days), authority.not_valid_after_utc)
        if until <= now:
            raise AuthorityError(f"{self.certificate}: the authority itself has expired; make a new one elsewhere")
        key = ec.generate_private_key(ec.SECP256R1())
        short = [x509.NameAttribute(NameOID.COMMON_NAME, names[0])] if len(names[0]) <= _MOST_COMMON_NAME else []
        uses = [ExtendedKeyUsageOID.SERVER_AUTH] + ([] if master else [ExtendedKeyUsageOID.CLIENT_AUTH])
        alternatives: list[x509.GeneralName] = [
            x509.DNSName(one) if (address := _address(one)) is None else x509.IPAddress(address) for one in names
        ]
        made = (
            _builder(x509.Name(short), authority.subject, key, now, until)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(signs_certificates=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage(uses), critical=False)
            .add_extension(x509.SubjectAlternativeName(alternatives), critical=not short)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signing.public_key()), critical=False)
            .sign(signing, hashes.SHA256())
        )
        if not self.revocations.exists():
            self._write_list([], now)
        path, key_path = self._paths(name)
        _write(key_path, _pem(key), 0o600)
        _write(path, made.public_bytes(serialization.Encoding.PEM), 0o644)
        return _describe(path, key_path)


def _serial(certificate: Path) -> int:
    try:
        return x509.load_pem_x509_certificate(certificate.read_bytes()).serial_number
    except (OSError, ValueError) as error:
        raise AuthorityError(f"{certificate}: {getattr(error, 'strerror', None) or error}") from None


def _checked(name: str) -> str:
    """Return a host's name, or an address in its canonical form (RFC 5952). Raises AuthorityError."""
    if (address := _address(name)) is not None:
        return str(address)
    if not _NAME.match(name):
        raise AuthorityError(
            f"{name[:80]!r} is not a host's name or address: letters, digits and inside it also . _ -, at most 128"
        )
    return name


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(text) if _ADDRESS.match(text) else None
    except ValueError:
        return None


def _after(now: dt.datetime, days: int) -> dt.datetime:
    try:
        return now + dt.timedelta(days=days)
    except OverflowError:
        raise AuthorityError(f"--days: {days} would end after the year 9999; ask for fewer") from None


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, now: dt.datetime, until: dt.datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _SKEW)
        .not_valid_after(until)
    )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates, key_cert_sign=signs_certificates, crl_sign=signs_certificates,
        content_commitment=False, key_encipherment=False, data_encipherment=False, key_agreement=False,
        encipher_only=False, decipher_only=False,
    )  # fmt: skip


def _describe(certificate: Path, key: Path) -> Issued:
    try:
        read = x509.load_pem_x509_certificate(certificate.read_bytes())
        found = read.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        uses = read.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    except OSError as error:
        raise AuthorityError(f"{certificate}: {error.strerror}") from None
    except (ValueError, x509.ExtensionNotFound) as error:
        raise AuthorityError(f"{certificate}: not a certificate that was issued here: {error}") from None
    names = tuple(str(one.value) for one in found if isinstance(one, x509.DNSName | x509.IPAddress))
    return Issued(
        name=certificate.stem,
        names=names,
        master=ExtendedKeyUsageOID.CLIENT_AUTH not in uses,
        since=read.not_valid_before_utc,
        until=read.not_valid_after_utc,
        certificate=certificate,
        key=key,
    )


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    encoding, form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    return key.private_bytes(encoding, form, serialization.NoEncryption())


def _write(path: Path, data: bytes, mode: int) -> None:
    """Write a file that other users can never read before it has its mode.

    Raises:
        AuthorityError: the directory cannot be written.
    """
    try:
        replace_file(path, data, mode)
    except OSError as error:
        raise _unwritable(path, error) from None


def _unwritable(path: Path, error: OSError) -> AuthorityError:
    return AuthorityError(f"{error.filename or path}: {error.strerror}; name another place with --directory")
