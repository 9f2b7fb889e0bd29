"""Host names and addresses as they stand in URLs: with brackets where the address is one of IPv6."""

from ipaddress import IPv6Address, ip_address


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a listener on the host."""
    if host.lower().rstrip(".") == "localhost":
        return True
    try:
        address = ip_address(host)
    except ValueError:
        return False
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return (mapped or address).is_loopback


def is_unspecified(host: str) -> bool:
    """Whether the host stands for every address of this machine: `0.0.0.0` and `::`."""
    try:
        return ip_address(host).is_unspecified
    except ValueError:
        return False


def without_brackets(host: str) -> str:
    """The host as sockets take it: `[::1]` of a URL is `::1`."""
    return host[1:-1] if host.startswith("[") and host.endswith("]") else host


def host_in_url(host: str) -> str:
    """The host as it stands in a URL or a `Host` header. The zone of an address, `fe80::1%eth0`, is percent-encoded."""
    return f"[{host.replace('%', '%25')}]" if ":" in host else host


def host_and_port(host: str, port: int) -> str:
    """`127.0.0.1:80` and `[::1]:80`."""
    return f"{host_in_url(host)}:{port}"


def local_host(host: str) -> str:
    """The host by which this machine reaches a listener on `host`: for every address, the loopback one of its kind."""
    if not is_unspecified(host):
        return host
    return "::1" if ":" in host else "127.0.0.1"
