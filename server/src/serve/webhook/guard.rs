//! Decides which hosts webhooks may reach: a caller that can have something posted must not reach through the server
//! what only the server can reach.

use std::collections::BTreeSet;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use serde::Deserialize;
use url::Host;

use crate::serve::text::Text;

/// Lets webhooks reach public addresses, and beside those only hosts that the configuration allows by name or address.
///
/// It looks up the addresses of a host, each time that a connection is made, and only these are connected to: so a name
/// cannot mean one address when it is checked and another when it is used. An address in a URL itself is not looked up
/// here: the configuration refuses those.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(from = "BTreeSet<Allowed>")]
pub(crate) struct Guard(Arc<BTreeSet<Allowed>>);

impl From<BTreeSet<Allowed>> for Guard {
    fn from(allowed: BTreeSet<Allowed>) -> Self {
        Self(Arc::new(allowed))
    }
}

/// A host that may be reached whatever its address is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(try_from = "Text")]
enum Allowed {
    /// In the form of URLs, and without a dot at its end.
    Name(String),
    Address(IpAddr),
}

impl TryFrom<Text> for Allowed {
    type Error = &'static str;

    fn try_from(text: Text) -> Result<Self, &'static str> {
        let text = text.reveal();
        if let Ok(address) = text.parse::<IpAddr>() {
            return Ok(Self::Address(address.to_canonical()));
        }
        let is_plain = |name: &str| {
            let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
            name.bytes().all(plain)
        };
        match Host::parse(text) {
            Ok(Host::Domain(name)) if is_plain(&name) => Ok(Self::Name(without_dot(&name).to_owned())),
            _ => Err(
                "webhooks.allow has what is neither a host nor an address: allowed are these, such as billing.internal or \
                 10.0.0.7, without ports or patterns",
            ),
        }
    }
}

/// Removes the dot with which a name may end, and is the same.
fn without_dot(name: &str) -> &str {
    name.strip_suffix('.').unwrap_or(name)
}

/// Says that a host may not be reached.
#[derive(Debug)]
pub(crate) struct Refused {
    /// None, if the URL has the address itself.
    name: Option<String>,
    address: IpAddr,
    sort: &'static str,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, address, sort } = self;
        match name {
            Some(name) => write!(
                f,
                "{name} is at {address}, {sort}: allowed is that if webhooks.allow has {name:?} or \"{address}\""
            ),
            None => write!(
                f,
                "{address} is {sort}: allowed is that if webhooks.allow has \"{address}\""
            ),
        }
    }
}

impl std::error::Error for Refused {}

impl Guard {
    /// Refuses an address in a URL itself.
    pub(crate) fn check(&self, host: Option<Host<&str>>) -> Result<(), Refused> {
        let address = match host {
            Some(Host::Ipv4(address)) => IpAddr::V4(address),
            Some(Host::Ipv6(address)) => IpAddr::V6(address),
            Some(Host::Domain(_)) | None => return Ok(()),
        };
        match self.refusal(address) {
            Some(sort) => Err(Refused {
                name: None,
                address: address.to_canonical(),
                sort,
            }),
            None => Ok(()),
        }
    }

    /// Returns the addresses of a host that may be reached; at least one.
    fn reachable(
        &self,
        name: &str,
        found: impl Iterator<Item = SocketAddr>,
    ) -> Result<Vec<SocketAddr>, Refused> {
        let name = without_dot(name);
        if self.0.contains(&Allowed::Name(name.to_owned())) {
            return Ok(found.collect());
        }
        let mut refused = None;
        let mut reachable = Vec::new();
        for at in found {
            match self.refusal(at.ip()) {
                None => reachable.push(at),
                Some(sort) => {
                    refused.get_or_insert(Refused {
                        name: Some(name.to_owned()),
                        address: at.ip().to_canonical(),
                        sort,
                    });
                }
            }
        }
        match refused {
            Some(refused) if reachable.is_empty() => Err(refused),
            _ => Ok(reachable),
        }
    }

    /// Returns the class of an address, if that is why it may not be reached.
    fn refusal(&self, address: IpAddr) -> Option<&'static str> {
        let address = address.to_canonical();
        sort(address).filter(|_| !self.0.contains(&Allowed::Address(address)))
    }
}

impl Resolve for Guard {
    fn resolve(&self, name: Name) -> Resolving {
        let guard = self.clone();
        Box::pin(async move {
            // The URL's port is used, whatever is given here.
            let found = tokio::net::lookup_host((name.as_str(), 0)).await?;
            let reachable = guard.reachable(name.as_str(), found)?;
            Ok(Box::new(reachable.into_iter()) as Addrs)
        })
    }
}

/// Returns the class of an address that is not public, by the registries of IANA; none, if it is.
fn sort(address: IpAddr) -> Option<&'static str> {
    match address {
        IpAddr::V4(address) => sort_of_v4(address),
        IpAddr::V6(address) => sort_of_v6(address),
    }
}

fn sort_of_v4(address: Ipv4Addr) -> Option<&'static str> {
    Some(match address.octets() {
        [0, ..] => "an unspecified address",
        [127, ..] => "a loopback address",
        [10, ..] | [172, 16..=31, ..] | [192, 168, ..] => "a private address",
        [169, 254, ..] => "a link-local address",
        [100, 64..=127, ..] => "an address shared behind a provider's NAT",
        [192, 0, 2, _] | [198, 51, 100, _] | [203, 0, 113, _] => "an address for documentation",
        [192, 0, 0, _] | [192, 88, 99, _] | [198, 18..=19, ..] => "a reserved address",
        [224..=239, ..] => "a multicast address",
        [255, 255, 255, 255] => "the broadcast address",
        [240..=255, ..] => "a reserved address",
        _ => return None,
    })
}

fn sort_of_v6(address: Ipv6Addr) -> Option<&'static str> {
    // The address of version 4 that begins with this segment, for translated ones.
    let inner = |high: u16, low: u16| sort_of_v4(Ipv4Addr::from(u32::from(high) << 16 | u32::from(low)));
    Some(match address.segments() {
        [0, 0, 0, 0, 0, 0, 0, 0] => "an unspecified address",
        [0, 0, 0, 0, 0, 0, 0, 1] => "a loopback address",
        [0, 0, 0, 0, 0, 0xffff, high, low] => return inner(high, low),
        // NAT64, and 6to4.
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] => return inner(high, low),
        [0x2002, high, low, ..] => return inner(high, low),
        [0xfc00..=0xfdff, ..] => "a unique local address",
        [0xfe80..=0xfebf, ..] => "a link-local address",
        [0xff00..=0xffff, ..] => "a multicast address",
        [0x2001, 0xdb8, ..] | [0x3fff, 0..=0xfff, ..] => "an address for documentation",
        // Teredo among them, which embeds one of version 4.
        [0x2001, 0..=0x1ff, ..] => "a reserved address",
        [0x2000..=0x3fff, ..] => return None,
        _ => "a reserved address",
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn guard(allowed: &[&str]) -> Guard {
        let allowed = allowed.iter().map(|text| Text::plain(text).try_into().unwrap());
        Guard(Arc::new(allowed.collect()))
    }

    fn at(addresses: &[&str]) -> Vec<SocketAddr> {
        let at = |text: &&str| SocketAddr::new(text.parse().unwrap(), 0);
        addresses.iter().map(at).collect()
    }

    #[test]
    fn what_is_not_public_is_known() {
        for (addresses, expected) in [
            ("0.0.0.0 0.1.2.3 ::", Some("unspecified")),
            (
                "127.0.0.1 127.255.255.255 ::1 ::ffff:127.0.0.1 64:ff9b::127.0.0.1 2002:7f00:1::1",
                Some("loopback"),
            ),
            (
                "10.0.0.0 10.255.255.255 172.16.0.0 172.31.255.255 192.168.0.0 192.168.255.255 ::ffff:10.1.2.3 \
                 64:ff9b::192.168.1.1 2002:a00:1::",
                Some("private"),
            ),
            (
                "169.254.0.0 169.254.169.254 fe80::1 febf:ffff::1 ::ffff:169.254.169.254 64:ff9b::a9fe:a9fe \
                 2002:a9fe:a9fe::1",
                Some("link-local"),
            ),
            ("100.64.0.0 100.127.255.255 ::ffff:100.64.0.1", Some("NAT")),
            (
                "192.0.2.1 198.51.100.1 203.0.113.1 2001:db8::1 3fff::1 3fff:fff::1",
                Some("documentation"),
            ),
            ("224.0.0.1 239.255.255.255 ff02::1", Some("multicast")),
            ("255.255.255.255 ::ffff:255.255.255.255", Some("broadcast")),
            ("fc00::1 fd12:3456::1 fdff:ffff::1", Some("unique local")),
            (
                "192.0.0.8 192.88.99.1 198.18.0.1 198.19.255.255 240.0.0.1 255.255.255.254 ::127.0.0.1 ::2 \
                 ::ffff:0:127.0.0.1 64:ff9b:1::1 100::1 2001::1 2001:1ff::1 fec0::1 4000::1 5f00::1",
                Some("reserved"),
            ),
            (
                "1.1.1.1 9.255.255.255 11.0.0.0 100.63.255.255 100.128.0.0 128.0.0.1 169.253.0.1 172.15.0.1 172.32.0.1 \
                 192.0.1.1 192.167.0.1 198.17.0.1 198.20.0.1 223.255.255.255 ::ffff:1.1.1.1 64:ff9b::1.1.1.1 \
                 2002:101:101::1 2001:200::1 2001:db7::1 2001:db9::1 2606:4700::1111 3ffe::1 3fff:1000::1",
                None,
            ),
        ] {
            for address in addresses.split_ascii_whitespace() {
                let found = sort(address.parse().unwrap());
                let is_so = match expected {
                    Some(part) => found.is_some_and(|sort| sort.contains(part)),
                    None => found.is_none(),
                };
                assert!(is_so, "{address} is {found:?}, and not {expected:?}");
            }
        }
    }

    #[test]
    fn only_public_addresses_are_reached() {
        let found = at(&["10.0.0.7", "1.1.1.1", "::1", "2606:4700::1111"]);
        let reached = guard(&[]).reachable("billing.example", found.into_iter());
        assert_eq!(reached.unwrap(), at(&["1.1.1.1", "2606:4700::1111"]));
        let found = at(&["::ffff:10.0.0.7", "127.0.0.1"]);
        let refused = guard(&["other.example"]).reachable("billing.example", found.into_iter());
        assert_eq!(
            refused.unwrap_err().to_string(),
            "billing.example is at 10.0.0.7, a private address: allowed is that if webhooks.allow has \"billing.example\" or \
             \"10.0.0.7\""
        );
    }

    #[test]
    fn what_is_allowed_is_reached() {
        let found = at(&["10.0.0.7", "169.254.169.254"]);
        for name in ["billing.internal", "billing.internal."] {
            for allowed in ["billing.internal", "Billing.Internal", "billing.internal."] {
                let reached = guard(&[allowed]).reachable(name, found.clone().into_iter());
                assert_eq!(reached.unwrap(), found, "{name} by {allowed}");
            }
        }
        for allowed in ["10.0.0.7", "::ffff:10.0.0.7"] {
            let reached = guard(&[allowed]).reachable("billing.internal", found.clone().into_iter());
            assert_eq!(reached.unwrap(), at(&["10.0.0.7"]));
        }
        let refused = guard(&["internal"]).reachable("billing.internal", found.into_iter());
        assert!(refused.is_err());
    }

    #[test]
    fn an_address_in_a_url_is_checked_however_it_is_written() {
        for url in [
            "http://127.0.0.1/",
            "http://127.1/",
            "http://2130706433/",
            "http://0x7f.0.0.1/",
            "http://127.0.0.1./",
            "http://[::ffff:127.0.0.1]/",
            "http://[::ffff:7f00:1]/",
        ] {
            let url = url::Url::parse(url).unwrap();
            let refused = guard(&["127.0.0.2"]).check(url.host()).unwrap_err();
            assert_eq!(
                refused.to_string(),
                "127.0.0.1 is a loopback address: allowed is that if webhooks.allow has \"127.0.0.1\"",
                "{url}"
            );
            assert!(guard(&["127.0.0.1"]).check(url.host()).is_ok(), "{url}");
        }
        for url in ["http://1.1.1.1/", "http://localhost/"] {
            assert!(
                guard(&[]).check(url::Url::parse(url).unwrap().host()).is_ok(),
                "{url}"
            );
        }
    }

    #[test]
    fn what_is_no_host_is_refused() {
        for text in [
            "",
            "10.0.0.0/8",
            "billing.internal:8080",
            "http://billing.internal",
            "*.internal",
            "a b",
        ] {
            let refused = Allowed::try_from(Text::plain(text)).unwrap_err();
            assert!(refused.contains("allowed are these"), "{refused}");
        }
    }
}
