//! Clients behind balancers and proxies: where they really are, as those say whom the config trusts.
//!
//! A balancer of connections says it once, by the PROXY protocol, version 2, before anything else. A proxy of calls says it with each, by
//! `x-forwarded-for`. What others say is not believed.

use std::net::{IpAddr, SocketAddr};

use http::{HeaderMap, HeaderName};
use ppp::v2::{Addresses, Command, Header, Protocol};
use tokio::io::{AsyncRead, AsyncReadExt};
use tonic::Status;

use crate::policy::AddressRange;
use crate::refusal::{Refusal, Refused};

const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
/// What a header of version 2 begins with, up to its length.
const HEAD_LEN: usize = 16;
/// The longest header that is read, in bytes. Balancers add some hundred bytes to the addresses.
const REST_LEN_MAX: usize = 4096;
const SIGNATURE: &[u8; 12] = b"\r\n\r\n\0\r\nQUIT\n";

/// Addresses from which something is believed.
#[derive(Debug)]
pub(crate) struct TrustedSources(Vec<AddressRange>);

impl TrustedSources {
    /// None for an empty list.
    ///
    /// # Errors
    /// One is no range.
    pub(crate) fn parse(ranges: &[String]) -> Result<Option<TrustedSources>, String> {
        let ranges: Vec<_> = ranges.iter().map(|text| AddressRange::parse(text)).collect::<Result<_, _>>()?;
        Ok((!ranges.is_empty()).then_some(TrustedSources(ranges)))
    }

    pub(crate) fn contain(&self, address: IpAddr) -> bool {
        self.0.iter().any(|range| range.contains(address))
    }
}

/// Reads the header with which a balancer begins a connection: the address of the client, none where the balancer itself connects.
///
/// # Errors
/// In words.
pub(crate) async fn read_header<S: AsyncRead + Unpin>(stream: &mut S) -> Result<Option<SocketAddr>, String> {
    let mut bytes = vec![0; HEAD_LEN];
    let ended = |error: std::io::Error| format!("the connection ended in a PROXY header: {error}");
    // What is no header may be shorter than one.
    let mut len = 0;
    while len < HEAD_LEN {
        match stream.read(&mut bytes[len..]).await.map_err(ended)? {
            0 => return Err("the connection ended before a PROXY header".into()),
            more => len += more,
        }
        check_signature(&bytes[..len])?;
    }
    let rest = usize::from(u16::from_be_bytes([bytes[14], bytes[15]]));
    if rest > REST_LEN_MAX {
        return Err(format!(
            "a PROXY header of {rest} bytes is longer than the {REST_LEN_MAX} that are read"
        ));
    }
    bytes.resize(HEAD_LEN + rest, 0);
    stream.read_exact(&mut bytes[HEAD_LEN..]).await.map_err(ended)?;
    address_of(&bytes)
}

fn check_signature(bytes: &[u8]) -> Result<(), String> {
    let len = bytes.len().min(SIGNATURE.len());
    if bytes[..len] == SIGNATURE[..len] {
        return Ok(());
    }
    Err(match bytes.starts_with(b"PROXY") {
        true => "the balancer speaks version 1 of the PROXY protocol: configure version 2 there".into(),
        false => "the connection does not begin with a PROXY header, version 2".into(),
    })
}

fn address_of(bytes: &[u8]) -> Result<Option<SocketAddr>, String> {
    let header = Header::try_from(bytes).map_err(|error| format!("a PROXY header can't be read: {error}"))?;
    match (header.command, header.protocol, header.addresses) {
        (Command::Local, ..) => Ok(None),
        (_, Protocol::Datagram, _) => Err("a PROXY header speaks of datagrams".into()),
        (_, _, Addresses::IPv4(of)) => Ok(Some((of.source_address, of.source_port).into())),
        (_, _, Addresses::IPv6(of)) => Ok(Some((of.source_address, of.source_port).into())),
        (_, _, Addresses::Unix(_) | Addresses::Unspecified) => {
            Err("a PROXY header has no address of a network".into())
        }
    }
}

/// The address that trusted proxies say a call comes from: the last in `x-forwarded-for` that is not one of theirs. None where
/// they say nothing. `peer` is where the connection comes from; what is said by a stranger is removed.
///
/// # Errors
/// A trusted proxy has added what is no address.
pub(crate) fn forwarded_for(
    headers: &mut HeaderMap,
    trusted: &TrustedSources,
    peer: IpAddr,
) -> Result<Option<SocketAddr>, Refused> {
    if !trusted.contain(peer) {
        headers.remove(FORWARDED_FOR);
        return Ok(None);
    }
    let mut found = None;
    let values: Vec<_> = headers.get_all(FORWARDED_FOR).iter().collect();
    let entries = values.iter().rev().flat_map(|value| value.as_bytes().rsplit(|byte| *byte == b','));
    for entry in entries {
        let entry = String::from_utf8_lossy(entry.trim_ascii());
        let address = entry.parse::<SocketAddr>().ok().or_else(|| {
            let bare = entry.trim_start_matches('[').trim_end_matches(']');
            bare.parse::<IpAddr>().ok().map(|ip| SocketAddr::new(ip, 0))
        });
        let Some(address) = address else {
            let status = Status::invalid_argument(
                "x-forwarded-for of a trusted proxy holds something that is no address",
            );
            return Err(Refused { why: Refusal::Forwarded, status });
        };
        found = Some(address);
        if !trusted.contain(address.ip()) {
            break;
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(command: u8, family: u8, rest: &[u8]) -> Vec<u8> {
        let mut bytes = SIGNATURE.to_vec();
        bytes.extend([0x20 | command, family]);
        bytes.extend((rest.len() as u16).to_be_bytes());
        bytes.extend(rest);
        bytes
    }

    async fn read(bytes: &[u8]) -> Result<Option<SocketAddr>, String> {
        let mut stream = bytes;
        read_header(&mut stream).await
    }

    #[tokio::test]
    async fn addresses_are_read_and_what_is_wrong_is_said() {
        let v4 = [192, 0, 2, 7, 127, 0, 0, 1, 0x12, 0x34, 0, 80];
        assert_eq!(read(&header(1, 0x11, &v4)).await, Ok(Some(([192, 0, 2, 7], 0x1234).into())));
        let more = [&v4[..], &[3, 0, 4, 1, 2, 3, 4]].concat();
        assert_eq!(read(&header(1, 0x11, &more)).await, Ok(Some(([192, 0, 2, 7], 0x1234).into())));
        let mut v6 = [0; 36];
        v6[..2].copy_from_slice(&[0x20, 0x01]);
        assert_eq!(read(&header(1, 0x21, &v6)).await.unwrap().unwrap().to_string(), "[2001::]:0");
        assert_eq!(read(&header(0, 0, &[])).await, Ok(None));
        for (bytes, word) in [
            (header(1, 0x11, &v4[..11]), "can't be read"),
            (header(1, 0x12, &v4), "datagrams"),
            (header(1, 0x31, &[0; 216]), "no address"),
            (header(1, 0, &[]), "no address"),
            (header(5, 0x11, &v4), "can't be read"),
            (header(1, 0x11, &[0; 5000]), "5000 bytes"),
            (header(1, 0x11, &v4)[..20].to_vec(), "ended"),
            (b"PROXY TCP4 192.0.2.7 127.0.0.1 1 2\r\n".to_vec(), "version 1"),
            (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(), "does not begin"),
            (b"GET".to_vec(), "does not begin"),
            (Vec::new(), "ended before"),
        ] {
            let problem = read(&bytes).await.expect_err(word);
            assert!(problem.contains(word), "{word} in {problem}");
        }
        let mut other = header(1, 0x11, &v4);
        other[12] = 0x31;
        read(&other).await.unwrap_err();
    }

    /// Whatever comes, there is an answer, and one that lies within what came.
    #[tokio::test]
    async fn no_bytes_do_harm() {
        let mut seed = 7_u64;
        let mut next = || {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) as u8
        };
        for round in 0..20_000 {
            let rest: Vec<u8> = (0..next() / 3).map(|_| next()).collect();
            let mut bytes = header(next() & 3, next(), &rest);
            for _ in 0..round % 4 {
                let at = usize::from(next()) % bytes.len();
                bytes[at] = next();
            }
            bytes.truncate(bytes.len().saturating_sub(usize::from(next()) % 4));
            drop(read(&bytes).await);
        }
    }

    #[test]
    fn the_last_address_that_is_no_proxy_counts() {
        let trusted = TrustedSources::parse(&["10.0.0.0/8".into(), "::1".into()]).unwrap().unwrap();
        let of = |values: &[&str], peer: &str| {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(FORWARDED_FOR, value.parse().unwrap());
            }
            let found = forwarded_for(&mut headers, &trusted, peer.parse().unwrap());
            (
                found.map(|found| found.map(|found| found.to_string())).map_err(|refused| refused.why),
                headers.len(),
            )
        };
        let some = |text: &str| Ok(Some(text.to_owned()));
        assert_eq!(of(&["192.0.2.1"], "10.0.0.1"), (some("192.0.2.1:0"), 1));
        assert_eq!(of(&["6.6.6.6, 192.0.2.1 ,10.1.1.1"], "10.0.0.1"), (some("192.0.2.1:0"), 1));
        assert_eq!(of(&["nonsense, 192.0.2.1", "10.1.1.1"], "::1"), (some("192.0.2.1:0"), 2));
        assert_eq!(of(&["10.1.1.1:50"], "10.0.0.1"), (some("10.1.1.1:50"), 1));
        assert_eq!(of(&["[2001:db8::1]"], "10.0.0.1"), (some("[2001:db8::1]:0"), 1));
        assert_eq!(of(&["2001:db8::1"], "10.0.0.1"), (some("[2001:db8::1]:0"), 1));
        assert_eq!(of(&[], "10.0.0.1"), (Ok(None), 0));
        assert_eq!(of(&["192.0.2.1"], "192.0.2.9"), (Ok(None), 0));
        assert_eq!(of(&["192.0.2.1, unknown"], "10.0.0.1"), (Err(Refusal::Forwarded), 1));
        assert_eq!(of(&[""], "10.0.0.1"), (Err(Refusal::Forwarded), 1));
    }
}
