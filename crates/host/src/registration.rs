//! What a process says of itself at a gateway's socket: which services it brings, or where its calls are to go.
//!
//! # Layout
//! The bytes behind an ATTACH or a VIA, `tollfree_layout::handshake`.
//!
//! # Trust
//! Names come from any process that may connect. They are bounded in length and number, and hold visible ASCII only, so that
//! they can be shown and compared as they are. Nothing says that they are true: a gateway lets in whom its policy lets in.

use std::io;
use std::sync::Arc;

use tollfree_layout::handshake::{AttachHead, PROCESS_ID_LEN, kind};
use tollfree_layout::limits::{
    GROUP_LEN_MAX, REGISTRATION_LEN_MAX, SERVICE_COUNT_MAX, SERVICE_LEN_MAX, TARGET_LEN_MAX,
};
use tollfree_session::Role;
use zerocopy::{FromBytes, IntoBytes};

use crate::tokens::Token;

/// How a process registers that attaches to a gateway.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Registration {
    /// Random, and the same for all backend connections of one server.
    pub process: [u8; PROCESS_ID_LEN],
    /// The backend connection's number within its server, from 0.
    pub backend_connection: u32,
    /// The group that it belongs to.
    pub group: Arc<str>,
    /// The services that it serves.
    pub services: Arc<[String]>,
}

/// What a process wants that connects to a socket.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub enum Purpose {
    /// To call the server there.
    #[default]
    Call,
    /// To be called by the gateway there.
    Attach(Registration),
    /// To call this target by way of the gateway there.
    Via(Arc<str>),
}

/// Why a group's name is none.
const GROUP: &str = "the name of a group has 1 to 64 visible ASCII characters";
/// Why a service's name is none.
const SERVICE: &str = "the name of a service has 1 to 255 visible ASCII characters, and no slash";
/// Why there are too many names.
const SERVICES: &str = "a process attaches with up to 256 services, and 8 KiB of their names";
/// Why a target is none.
const TARGET: &str = "a target has 1 to 1024 visible ASCII characters, as https://host:port has";
const SHORT: &str = "its registration ends in the middle of a name";
const LONG: &str = "its registration goes on behind the last name";

fn is_name(name: &[u8], len_max: usize) -> bool {
    (1..=len_max).contains(&name.len()) && name.iter().all(u8::is_ascii_graphic)
}

fn is_service(name: &[u8]) -> bool {
    is_name(name, SERVICE_LEN_MAX) && !name.contains(&b'/')
}

/// A name that was found to be one.
fn text(name: &[u8]) -> String {
    String::from_utf8_lossy(name).into_owned()
}

impl Registration {
    /// The registration of a server's first backend connection, which is like no other server's.
    ///
    /// # Errors
    /// The kernel has no random bytes.
    pub fn new(group: &str, services: Vec<String>) -> io::Result<Registration> {
        let process = *Token::random()?.bytes();
        Ok(Registration { process, backend_connection: 0, group: group.into(), services: services.into() })
    }

    fn pack(&self) -> Vec<u8> {
        let head = AttachHead {
            process: self.process,
            backend_connection: self.backend_connection.into(),
            group_len: (self.group.len() as u16).into(),
            service_count: (self.services.len() as u16).into(),
        };
        let mut bytes = head.as_bytes().to_vec();
        bytes.extend(self.group.as_bytes());
        for service in &*self.services {
            bytes.push(service.len() as u8);
            bytes.extend(service.as_bytes());
        }
        bytes
    }

    fn check(&self) -> Result<(), &'static str> {
        if !is_name(self.group.as_bytes(), GROUP_LEN_MAX) {
            return Err(GROUP);
        }
        if !self.services.iter().all(|service| is_service(service.as_bytes())) {
            return Err(SERVICE);
        }
        if self.services.len() > SERVICE_COUNT_MAX || self.pack().len() > REGISTRATION_LEN_MAX {
            return Err(SERVICES);
        }
        Ok(())
    }

    fn read(bytes: &[u8]) -> Result<Registration, &'static str> {
        let (head, rest) = AttachHead::read_from_prefix(bytes).map_err(|_| SHORT)?;
        let (group, mut rest) = rest.split_at_checked(head.group_len.get().into()).ok_or(SHORT)?;
        if !is_name(group, GROUP_LEN_MAX) {
            return Err(GROUP);
        }
        let count = usize::from(head.service_count.get());
        if count > SERVICE_COUNT_MAX {
            return Err(SERVICES);
        }
        let mut services = Vec::with_capacity(count);
        for _ in 0..count {
            let (len, behind) = rest.split_first().ok_or(SHORT)?;
            let (service, behind) = behind.split_at_checked((*len).into()).ok_or(SHORT)?;
            if !is_service(service) {
                return Err(SERVICE);
            }
            services.push(text(service));
            rest = behind;
        }
        if !rest.is_empty() {
            return Err(LONG);
        }
        let (process, backend_connection) = (head.process, head.backend_connection.get());
        Ok(Registration { process, backend_connection, group: text(group).into(), services: services.into() })
    }
}

impl Purpose {
    /// Whether a process could say so.
    ///
    /// # Errors
    /// What is wrong with the names, and how long they may be.
    pub fn check(&self) -> Result<(), &'static str> {
        match self {
            Purpose::Call => Ok(()),
            Purpose::Attach(registration) => registration.check(),
            Purpose::Via(target) if is_name(target.as_bytes(), TARGET_LEN_MAX) => Ok(()),
            Purpose::Via(_) => Err(TARGET),
        }
    }

    /// The kind of the message that says so.
    pub fn kind(&self) -> u32 {
        match self {
            Purpose::Call => kind::HELLO,
            Purpose::Attach(_) => kind::ATTACH,
            Purpose::Via(_) => kind::VIA,
        }
    }

    /// What follows that message.
    pub fn body(&self) -> Vec<u8> {
        match self {
            Purpose::Call => Vec::new(),
            Purpose::Attach(registration) => registration.pack(),
            Purpose::Via(target) => target.as_bytes().to_vec(),
        }
    }

    /// What the one that says so is in the session.
    pub fn role(&self) -> Role {
        match self {
            Purpose::Attach(_) => Role::Server,
            Purpose::Call | Purpose::Via(_) => Role::Client,
        }
    }

    /// What a message of this kind, with this behind it, asks for. No kind but those of requests gets here.
    ///
    /// # Errors
    /// What is wrong with the names.
    pub fn read(of_kind: u32, body: &[u8]) -> Result<Purpose, &'static str> {
        match of_kind {
            kind::ATTACH => Registration::read(body).map(Purpose::Attach),
            kind::VIA if is_name(body, TARGET_LEN_MAX) => Ok(Purpose::Via(text(body).into())),
            kind::VIA => Err(TARGET),
            _ => Ok(Purpose::Call),
        }
    }
}

/// How many bytes of registration follow a message.
///
/// # Errors
/// It is longer than any may be.
pub fn body_len(of_kind: u32, len: u32) -> Result<usize, &'static str> {
    match (of_kind, len as usize) {
        (kind::ATTACH | kind::VIA, len) if len <= REGISTRATION_LEN_MAX => Ok(len),
        (kind::ATTACH | kind::VIA, _) => Err("its registration is longer than 8 KiB"),
        _ => Ok(0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn registration() -> Registration {
        Registration {
            process: [7; PROCESS_ID_LEN],
            backend_connection: 3,
            group: "orders".into(),
            services: ["shop.Orders".to_owned(), "x".repeat(SERVICE_LEN_MAX)].into(),
        }
    }

    fn read(bytes: &[u8]) -> Result<Purpose, &'static str> {
        Purpose::read(kind::ATTACH, bytes)
    }

    #[test]
    fn a_registration_is_read_as_it_was_written_and_never_in_part() {
        let whole = Purpose::Attach(registration());
        whole.check().unwrap();
        let bytes = whole.body();
        assert_eq!(read(&bytes), Ok(whole));
        for len in 0..bytes.len() {
            assert_eq!(read(&bytes[..len]), Err(SHORT), "{len}");
        }
        assert_eq!(read(&[&bytes[..], b"x"].concat()), Err(LONG));
    }

    #[test]
    fn names_are_short_visible_and_not_too_many() {
        let with = |edit: &dyn Fn(&mut Registration)| {
            let mut changed = registration();
            edit(&mut changed);
            Purpose::Attach(changed)
        };
        let wrong: [(Purpose, &str); 9] = [
            (with(&|it| it.group = "".into()), GROUP),
            (with(&|it| it.group = "g".repeat(GROUP_LEN_MAX + 1).into()), GROUP),
            (with(&|it| it.group = "two words".into()), GROUP),
            (with(&|it| it.group = "größe".into()), GROUP),
            (with(&|it| it.services = [String::new()].into()), SERVICE),
            (with(&|it| it.services = ["a/b".to_owned()].into()), SERVICE),
            (with(&|it| it.services = ["a\u{1b}[31m".to_owned()].into()), SERVICE),
            (with(&|it| it.services = vec!["s".to_owned(); SERVICE_COUNT_MAX + 1].into()), SERVICES),
            (with(&|it| it.services = vec!["s".repeat(SERVICE_LEN_MAX); 40].into()), SERVICES),
        ];
        for (purpose, words) in wrong {
            assert_eq!(purpose.check(), Err(words));
            if purpose.body().len() <= REGISTRATION_LEN_MAX {
                assert_eq!(read(&purpose.body()), Err(words));
            }
        }
        assert_eq!(read(&[&registration().pack()[..24], b"\xff\xfe\xfd\xfc\xfb\xfa"].concat()), Err(GROUP));
    }

    #[test]
    fn a_target_is_an_address_and_not_a_text() {
        let via = |target: &str| Purpose::Via(target.into());
        let good = via("https://inventory:443");
        assert_eq!(Purpose::read(kind::VIA, &good.body()), Ok(good.clone()));
        for target in ["", "two words", "\0", "ü", &"t".repeat(TARGET_LEN_MAX + 1)] {
            assert_eq!(via(target).check(), Err(TARGET));
            assert_eq!(Purpose::read(kind::VIA, target.as_bytes()), Err(TARGET));
        }
    }

    #[test]
    fn only_requests_at_a_gateway_have_something_behind_them() {
        assert_eq!(body_len(kind::HELLO, u32::MAX), Ok(0));
        for of_kind in [kind::ATTACH, kind::VIA] {
            assert_eq!(body_len(of_kind, REGISTRATION_LEN_MAX as u32), Ok(REGISTRATION_LEN_MAX));
            assert!(body_len(of_kind, REGISTRATION_LEN_MAX as u32 + 1).is_err());
        }
    }
}
