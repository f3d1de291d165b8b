# SPDX-License-Identifier: Apache-2.0
"""Addresses of servers as people write them: with the whole path, without a scheme, without the version."""

from __future__ import annotations

import ipaddress
import urllib.parse

from kernelwright.errors import ModelError

ENDPOINTS = ("/chat/completions", "/completions", "/responses", "/models")
"""Ends of a path that clients add themselves."""
VERSION = "/v1"


def tidy(address: str) -> str:
    """The address that paths are added to. Raises ``ModelError`` for what is no address of a web server."""
    text = address.strip()
    if "://" not in text:
        text = f"{'http' if _near(text) else 'https'}://{text}"
    text = text.rstrip("/")
    for endpoint in ENDPOINTS:
        text = text.removesuffix(endpoint)
    try:
        parts = urllib.parse.urlsplit(text)
        good = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        good = False
    if not good:
        raise ModelError("This is no address of a server.", address, "http://host:port/v1", "see --base-url")
    return text.rstrip("/")


def is_bare(address: str) -> bool:
    """Whether it names a server and no path on it: most servers then answer below ``VERSION`` alone."""
    return urllib.parse.urlsplit(address).path in ("", "/")


def is_here(address: str) -> bool:
    """Whether it is on this machine: no proxy named in the environment is on the way there."""
    host = urllib.parse.urlsplit(address).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _near(text: str) -> bool:
    """Whether a name without a scheme is likelier spoken to in the clear: this machine, a number, a port."""
    host, _, port = text.partition("/")[0].rpartition(":") if ":" in text.partition("/")[0] else (text, "", "")
    host = (host or text).partition("/")[0].strip("[]")
    try:
        return bool(ipaddress.ip_address(host))
    except ValueError:
        return host == "localhost" or port not in ("", "443")
