//! Who may say for whom a request comes.

use std::net::IpAddr;

use serde::Deserialize;

/// The addresses of proxies of one's own, which say in `X-Forwarded-For` where a request comes from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(try_from = "Vec<String>")]
pub(crate) struct Proxies(Vec<Network>);

/// The addresses that begin with the same bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Network {
    address: IpAddr,
    bits: u32,
}

impl Proxies {
    /// The client of a request that came from `peer`: of the addresses that proxies of one's own have added, the last one that
    /// is none of theirs. What a client itself has said stands before that, and is not looked at.
    pub(crate) fn client<'h>(
        &self,
        peer: IpAddr,
        forwarded_for: impl DoubleEndedIterator<Item = &'h str>,
    ) -> IpAddr {
        let mut client = peer.to_canonical();
        for hop in forwarded_for.rev().flat_map(|header| header.rsplit(',')) {
            if !self.has(client) {
                break;
            }
            match address(hop.trim()) {
                Some(before) => client = before,
                None => break,
            }
        }
        client
    }

    fn has(&self, address: IpAddr) -> bool {
        self.0.iter().any(|network| network.has(address))
    }
}

/// An address as proxies write it, some with a port.
fn address(text: &str) -> Option<IpAddr> {
    let with_port = || text.parse().ok().map(|socket: std::net::SocketAddr| socket.ip());
    let address = text.trim_matches(['[', ']']).parse().ok().or_else(with_port);
    address.map(|address: IpAddr| address.to_canonical())
}

impl Network {
    fn parse(text: &str) -> Option<Self> {
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits.parse::<u32>().ok()?)),
            None => (text, None),
        };
        let address = address.parse::<IpAddr>().ok()?.to_canonical();
        let all = if address.is_ipv4() { 32 } else { 128 };
        let bits = bits.unwrap_or(all);
        (bits <= all).then_some(Self { address, bits })
    }

    fn has(&self, address: IpAddr) -> bool {
        let differs = match (self.address, address) {
            (IpAddr::V4(one), IpAddr::V4(other)) => (one.to_bits() ^ other.to_bits()).leading_zeros(),
            (IpAddr::V6(one), IpAddr::V6(other)) => (one.to_bits() ^ other.to_bits()).leading_zeros(),
            _ => return false,
        };
        differs >= self.bits
    }
}

impl TryFrom<Vec<String>> for Proxies {
    type Error = String;

    fn try_from(texts: Vec<String>) -> Result<Self, String> {
        let network = |text: &String| {
            Network::parse(text).ok_or_else(|| {
                format!("trusted_proxies has {text:?}: allowed are addresses and networks, such as 10.0.0.7, 10.0.0.0/8 or fd00::/8")
            })
        };
        texts.iter().map(network).collect::<Result<_, _>>().map(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn proxies(texts: &[&str]) -> Result<Proxies, String> {
        Proxies::try_from(texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn a_client_is_the_last_address_that_no_proxy_has() {
        let ours = proxies(&["10.0.0.0/8", "192.0.2.1", "fd00::/8"]).unwrap();
        for (peer, headers, client) in [
            ("203.0.113.5", &["198.51.100.1"][..], "203.0.113.5"),
            ("10.0.0.7", &[], "10.0.0.7"),
            ("10.0.0.7", &["198.51.100.1"], "198.51.100.1"),
            ("::ffff:10.0.0.7", &["198.51.100.1"], "198.51.100.1"),
            // What the client has made up comes first.
            ("10.0.0.7", &["1.1.1.1, 198.51.100.1"], "198.51.100.1"),
            ("10.0.0.7", &["1.1.1.1", "198.51.100.1, 10.1.2.3"], "198.51.100.1"),
            ("fd00::1", &["198.51.100.1:4711"], "198.51.100.1"),
            ("fd00::1", &["[2001:db8::1]:4711"], "2001:db8::1"),
            ("192.0.2.1", &["10.0.0.9,2001:db8::1"], "2001:db8::1"),
            ("192.0.2.2", &["198.51.100.1"], "192.0.2.2"),
            ("10.0.0.7", &["198.51.100.1, unknown"], "10.0.0.7"),
        ] {
            let found = ours.client(peer.parse().unwrap(), headers.iter().copied());
            assert_eq!(found, client.parse::<IpAddr>().unwrap(), "{peer} {headers:?}");
        }
    }

    #[test]
    fn what_is_no_network_is_refused() {
        for wrong in [
            "",
            "proxy.example",
            "10.0.0.0/33",
            "10.0.0.0/",
            "fd00::/129",
            "10.0.0.1:80",
        ] {
            let error = proxies(&[wrong]).unwrap_err();
            assert!(error.contains(&format!("{wrong:?}")), "{error}");
        }
        assert!(proxies(&["0.0.0.0/0"]).unwrap().has([1, 2, 3, 4].into()));
    }
}
