//! Who has called from outside, as a gateway hands it on and application code is told.
//!
//! A gateway says it in headers of each call, whose names nobody outside may use. A server that has attached takes them out
//! and gives handlers a [`Caller`]. A process that the gateway has led to it is a [`Caller`] as the kernel names it. In a session with any
//! other client the same headers are metadata like all others, and there is no [`Caller`].

use std::borrow::Cow;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use http::Extensions;
use http::header::{HeaderMap, HeaderName, HeaderValue};
use tollfree_driver_tokio::PeerIdentity;

use crate::endpoint::direct_connection::read_process;

/// What only a gateway and Tollfree itself may say.
const OURS: &str = "tollfree-";

/// Who has called a gateway from outside: in the extensions of each request that comes by way of one.
///
/// It is missing where the request came from anybody else, so a handler that decides by it refuses what has none. No
/// client can forge it: it is read only in sessions with a gateway that this server has attached to, and a gateway removes what
/// clients say in its place. A process that the gateway has led here is named by the kernel.
///
/// # Example
/// ```
/// use tollfree::gateway::Caller;
/// use tonic::{Request, Status};
///
/// fn who<T>(request: &Request<T>) -> Result<String, Status> {
///     let caller = request.extensions().get::<Caller>();
///     let subject = caller.and_then(Caller::subject);
///     Ok(subject.ok_or_else(|| Status::unauthenticated("show a certificate"))?.to_owned())
/// }
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Caller(Arc<Said>);

#[derive(Debug, PartialEq, Eq)]
struct Said {
    address: CallerAddress,
    subject: Option<String>,
    names: Vec<String>,
}

/// Where a [`Caller`] is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum CallerAddress {
    /// Elsewhere, by TCP.
    Inet(SocketAddr),
    /// A process that has connected to a Unix socket of the gateway's. The user is certain; the number may be of a process that has
    /// ended since.
    Unix {
        /// The process.
        pid: i32,
        /// Its user.
        uid: u32,
    },
    /// A backend that calls by way of the gateway, or was led here by it.
    Backend {
        /// The process.
        pid: i32,
        /// Its user.
        uid: u32,
    },
    /// A backend of another host that calls by way of the gateway, from this address. [`subject`](Caller::subject) is that of the
    /// certificate by which the gateway's config lets it in.
    Remote(SocketAddr),
}

impl Caller {
    /// The header that says the address: `ip:port`, `unix:pid=…,uid=…`, `shm:pid=…,uid=…` or `device:ip:port`.
    pub const ADDRESS: HeaderName = HeaderName::from_static("tollfree-client-address");
    /// The header that says the subject of the certificate, percent-encoded.
    pub const SUBJECT: HeaderName = HeaderName::from_static("tollfree-client-subject");
    /// A header for each name of the certificate, percent-encoded.
    pub const NAME: HeaderName = HeaderName::from_static("tollfree-client-name");

    /// Where it is.
    pub fn address(&self) -> CallerAddress {
        self.0.address
    }

    /// The subject of the certificate that it has shown in a TLS handshake, and that was checked there.
    pub fn subject(&self) -> Option<&str> {
        self.0.subject.as_deref()
    }

    /// The DNS names and URIs of that certificate, up to 16.
    pub fn names(&self) -> &[String] {
        &self.0.names
    }
}

impl fmt::Debug for Caller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl CallerAddress {
    fn read(text: &str) -> Option<CallerAddress> {
        if let Some(rest) = text.strip_prefix("unix:") {
            return read_process(rest).map(|(pid, uid)| CallerAddress::Unix { pid, uid });
        }
        if let Some(rest) = text.strip_prefix("shm:") {
            return read_process(rest).map(|(pid, uid)| CallerAddress::Backend { pid, uid });
        }
        if let Some(rest) = text.strip_prefix("device:") {
            return rest.parse().ok().map(CallerAddress::Remote);
        }
        text.parse().ok().map(CallerAddress::Inet)
    }
}

/// Removes headers that only a gateway and Tollfree itself may say: those whose names begin with `tollfree-`.
pub fn remove_ours(headers: &mut HeaderMap) {
    let ours: Vec<HeaderName> =
        headers.keys().filter(|name| name.as_str().starts_with(OURS)).cloned().collect();
    for name in ours {
        headers.remove(name);
    }
}

/// What the client of a session is to its server, as far as answers depend on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ClientRole {
    /// It calls, and no more is known of it.
    Caller,
    /// A gateway that this server has attached to.
    Gateway,
    /// A process that a gateway has led here.
    Led,
}

impl ClientRole {
    /// What a handler says, for this client: a gateway would have removed some of it for a process that it has led here.
    pub(crate) fn answer_headers(self, headers: &HeaderMap) -> Cow<'_, HeaderMap> {
        let is_removed =
            self == ClientRole::Led && headers.keys().any(|name| name.as_str().starts_with(OURS));
        if !is_removed {
            return Cow::Borrowed(headers);
        }
        let mut headers = headers.clone();
        remove_ours(&mut headers);
        Cow::Owned(headers)
    }

    /// Whether it compresses answers in this process's place, unless it is told not to.
    pub(crate) fn compresses(self) -> bool {
        self == ClientRole::Gateway
    }
}

/// Whom the calls of a session come from, in one with a gateway or with a process that the gateway has named.
#[derive(Default)]
pub(crate) struct Callers {
    /// Set where all come from the process at the other end.
    neighbor: Option<Caller>,
    /// What the gateway has said last, since most calls come from the one before.
    last: Option<(Headers, Option<Caller>)>,
}

/// What a call's headers say of its caller.
#[derive(PartialEq, Eq)]
struct Headers {
    address: HeaderValue,
    subject: Option<HeaderValue>,
    names: Vec<HeaderValue>,
}

impl Callers {
    /// All calls come from the process at the other end, whatever it says.
    pub(crate) fn of_neighbor(peer: PeerIdentity) -> Callers {
        let address = CallerAddress::Backend { pid: peer.pid, uid: peer.uid };
        let caller = Caller(Arc::new(Said { address, subject: None, names: Vec::new() }));
        Callers { neighbor: Some(caller), last: None }
    }

    /// What the client is that these callers call by.
    pub(crate) fn role(&self) -> ClientRole {
        if self.neighbor.is_some() { ClientRole::Led } else { ClientRole::Gateway }
    }

    /// Takes the headers that say who calls out of a request's, and puts the [`Caller`] into its extensions.
    pub(crate) fn tell(&mut self, headers: &mut HeaderMap, extensions: &mut Extensions) {
        if let Some(caller) = &self.neighbor {
            remove_ours(headers);
            extensions.insert(caller.clone());
            return;
        }
        let address = headers.remove(Caller::ADDRESS);
        let subject = headers.remove(Caller::SUBJECT);
        let mut names = Vec::new();
        if let http::header::Entry::Occupied(entry) = headers.entry(Caller::NAME) {
            names.extend(entry.remove_entry_mult().1);
        }
        // A gateway that doesn't say where a caller is says nothing of it.
        let Some(address) = address else { return };
        let said = Headers { address, subject, names };
        let caller = match &self.last {
            Some((last, caller)) if *last == said => caller.clone(),
            _ => {
                let caller = said.read();
                self.last = Some((said, caller.clone()));
                caller
            }
        };
        if let Some(caller) = caller {
            extensions.insert(caller);
        }
    }
}

impl Headers {
    fn read(&self) -> Option<Caller> {
        let address = CallerAddress::read(self.address.to_str().ok()?)?;
        let subject = self.subject.as_ref().map(decoded);
        let names = self.names.iter().map(decoded).collect();
        Some(Caller(Arc::new(Said { address, subject, names })))
    }
}

/// The text of a value that is percent-encoded, as `grpc-message` is.
fn decoded(value: &HeaderValue) -> String {
    let mut bytes = Vec::with_capacity(value.len());
    let mut rest = value.as_bytes();
    while let Some((byte, behind)) = rest.split_first() {
        rest = behind;
        let code = match behind {
            [high, low, ..] if *byte == b'%' => {
                char::from(*high).to_digit(16).zip(char::from(*low).to_digit(16))
            }
            _ => None,
        };
        match code {
            Some((high, low)) => {
                bytes.push((high * 16 + low) as u8);
                rest = &behind[2..];
            }
            None => bytes.push(*byte),
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(pairs: &[(HeaderName, &'static str)]) -> (Option<Caller>, HeaderMap) {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(name.clone(), HeaderValue::from_static(value));
        }
        let mut extensions = Extensions::new();
        Callers::default().tell(&mut headers, &mut extensions);
        (extensions.remove(), headers)
    }

    #[test]
    fn callers_are_read_and_their_headers_taken_out() {
        let (caller, left) = told(&[
            (Caller::ADDRESS, "192.0.2.1:50"),
            (Caller::SUBJECT, "CN=Zo%C3%AB 100%25"),
            (Caller::NAME, "a.example"),
            (HeaderName::from_static("x-other"), "kept"),
            (Caller::NAME, "spiffe://b"),
        ]);
        let caller = caller.unwrap();
        assert_eq!(caller.address(), CallerAddress::Inet("192.0.2.1:50".parse().unwrap()));
        assert_eq!(caller.subject(), Some("CN=Zoë 100%"));
        assert_eq!(caller.names(), ["a.example", "spiffe://b"]);
        assert_eq!(left.len(), 1, "{left:?}");
        let address = |text| told(&[(Caller::ADDRESS, text)]).0.map(|caller| caller.address());
        assert_eq!(address("unix:pid=7,uid=8"), Some(CallerAddress::Unix { pid: 7, uid: 8 }));
        assert_eq!(address("shm:pid=7,uid=8"), Some(CallerAddress::Backend { pid: 7, uid: 8 }));
        assert!(matches!(address("[2001:db8::1]:1"), Some(CallerAddress::Inet(_))));
        let remote = CallerAddress::Remote("[2001:db8::1]:1".parse().unwrap());
        assert_eq!(address("device:[2001:db8::1]:1"), Some(remote));
    }

    #[test]
    fn what_names_no_caller_makes_none() {
        for address in
            ["", "unix:", "unix:pid=1", "shm:pid=x,uid=1", "device:", "device:host:1", "host:1", "192.0.2.1"]
        {
            let (caller, left) = told(&[(Caller::ADDRESS, address), (Caller::SUBJECT, "CN=x")]);
            assert!(caller.is_none() && left.is_empty(), "{address:?}");
        }
        let (caller, left) = told(&[(Caller::SUBJECT, "CN=x"), (Caller::NAME, "x")]);
        assert!(caller.is_none() && left.is_empty());
    }

    #[test]
    fn a_caller_is_read_again_only_where_another_calls() {
        let mut callers = Callers::default();
        let mut of = |address: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(Caller::ADDRESS, HeaderValue::from_static(address));
            let mut extensions = Extensions::new();
            callers.tell(&mut headers, &mut extensions);
            extensions.remove::<Caller>().unwrap()
        };
        let first = of("192.0.2.1:1");
        assert!(Arc::ptr_eq(&first.0, &of("192.0.2.1:1").0));
        assert_ne!(first, of("192.0.2.1:2"));
    }

    #[test]
    fn a_neighbor_is_who_the_kernel_says_and_says_nothing_in_our_names() {
        let mut headers = HeaderMap::new();
        for name in [Caller::ADDRESS, Caller::SUBJECT, HeaderName::from_static("tollfree-offer")] {
            headers.append(name, HeaderValue::from_static("192.0.2.1:1"));
        }
        headers.append("x-tollfree-offer", HeaderValue::from_static("kept"));
        let mut extensions = Extensions::new();
        Callers::of_neighbor(PeerIdentity { pid: 7, uid: 8, gid: 9 }).tell(&mut headers, &mut extensions);
        let caller: Caller = extensions.remove().unwrap();
        assert_eq!(caller.address(), CallerAddress::Backend { pid: 7, uid: 8 });
        assert!(caller.subject().is_none() && headers.len() == 1, "{headers:?}");
    }

    #[test]
    fn any_value_can_be_decoded() {
        for (encoded, text) in [("%", "%"), ("%4", "%4"), ("%zz", "%zz"), ("%41%", "A%"), ("%FF", "\u{fffd}")]
        {
            assert_eq!(decoded(&HeaderValue::from_static(encoded)), text);
        }
    }
}
