//! Tokens by which a server knows a client again: given out over TCP, presented once in a handshake, and answered.
//!
//! # States
//! ```text
//! issue ─► given ─ redeem (once) ─► presented, with an answer ─ confirm (once) ─► forgotten
//!            └──────── too old, or too many younger ones ──────────┴─► forgotten
//! ```
//!
//! # Trust
//! A process that knows a token may present it, so it is worth no more than the right to be answered: a session that a token
//! began is one like any other. A client presents it together with the ends of its own connection, as its kernel says them, and the
//! server compares them with those of the connection by which it gave the token out. So a process that passes another server's
//! token on leads nobody to that server. The answer proves to the client that the process at the socket is the server that gave the
//! token, since nobody else can say by the way that the token came which answer it got. How many tokens are kept is
//! bounded, in all and for each connection; a client that asks for many crowds out its own oldest first.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::str::FromStr;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tollfree_layout::handshake::TOKEN_LEN;
use tollfree_os::rustix;
use tollfree_os::rustix::rand::GetRandomFlags;

use crate::ends::Ends;

/// A token is good for this long, its answer included.
const TOKEN_LIFE: Duration = Duration::from_secs(10);
/// Tokens kept at once; a further one takes the place of the oldest.
const TOKEN_COUNT_MAX: usize = 1024;
/// Of these, those of one connection; a further one takes the place of its own oldest.
const PEER_TOKEN_COUNT_MAX: usize = 16;

/// Random bytes that a server gives to a client, or answers with. Nobody guesses them.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Token([u8; TOKEN_LEN]);

impl Token {
    /// A new one.
    ///
    /// # Errors
    /// When the system has no random bytes.
    pub fn random() -> io::Result<Token> {
        let mut bytes = [0; TOKEN_LEN];
        let fill = || rustix::rand::getrandom(&mut bytes[..], GetRandomFlags::empty());
        // The kernel gives up to 256 bytes in one piece.
        match rustix::io::retry_on_intr(fill)? {
            TOKEN_LEN => Ok(Token(bytes)),
            _ => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }

    /// As they stand in a handshake message.
    pub(crate) fn bytes(&self) -> &[u8; TOKEN_LEN] {
        &self.0
    }
}

impl From<[u8; TOKEN_LEN]> for Token {
    fn from(bytes: [u8; TOKEN_LEN]) -> Token {
        Token(bytes)
    }
}

/// Not shown: logs are no place for it.
impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(..)")
    }
}

/// Hexadecimal, as it travels in a header.
impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl FromStr for Token {
    type Err = TokenError;

    fn from_str(text: &str) -> Result<Token, TokenError> {
        let digit = |byte: u8| (byte as char).to_digit(16).map(|digit| digit as u8);
        let mut bytes = [0; TOKEN_LEN];
        if text.len() != 2 * TOKEN_LEN {
            return Err(TokenError::Text);
        }
        for (byte, pair) in bytes.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
            let (Some(high), Some(low)) = (digit(pair[0]), digit(pair[1])) else {
                return Err(TokenError::Text);
            };
            *byte = high << 4 | low;
        }
        Ok(Token(bytes))
    }
}

/// What a client presents at a socket that a server has offered it over TCP.
#[derive(Clone, Copy, Debug)]
pub struct Ticket {
    /// The token that came over TCP.
    pub token: Token,
    /// The ends of the client's connection by which it came. `None`: it may have come by another, for instance a proxy's.
    pub ends: Option<Ends>,
}

/// What is wrong with a token.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TokenError {
    /// The server gives none out.
    #[error("this server has given out no tokens: it is not the one that the client talks to over TCP")]
    NoneGiven,
    /// The server doesn't know it.
    #[error("this server does not know the token: given out by another, presented before, or too old")]
    Unknown,
    /// The server gave it out over another connection than the client's.
    #[error("the token was given out over another connection, with the ends {0}")]
    Ends(Ends),
    /// Not 32 hexadecimal digits.
    #[error("a token has 32 hexadecimal digits")]
    Text,
    /// The system has no random bytes.
    #[error("no random bytes for an answer: {0}")]
    Random(#[source] io::Error),
}

/// A token that was given out.
struct Given {
    token: Token,
    at: Instant,
    /// The connection by which it went.
    ends: Ends,
    /// Set when it was presented.
    answer: Option<Token>,
}

/// The tokens that a server has given out.
#[derive(Default)]
pub struct Tokens {
    /// The oldest first.
    given: Mutex<VecDeque<Given>>,
}

impl fmt::Debug for Tokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tokens").field("count", &self.given.lock().len()).finish()
    }
}

impl Tokens {
    /// A new token for the client at the other end of a connection, whose ends are as this server sees them.
    ///
    /// # Errors
    /// When the system has no random bytes.
    pub fn issue(&self, ends: Ends) -> io::Result<Token> {
        self.issue_at(ends, Instant::now())
    }

    fn issue_at(&self, ends: Ends, now: Instant) -> io::Result<Token> {
        let token = Token::random()?;
        let mut given = self.given.lock();
        forget_old(&mut given, now);
        if given.iter().filter(|given| given.ends == ends).count() >= PEER_TOKEN_COUNT_MAX {
            let oldest = given.iter().position(|given| given.ends == ends);
            oldest.and_then(|oldest| given.remove(oldest));
        } else if given.len() >= TOKEN_COUNT_MAX {
            given.pop_front();
        }
        given.push_back(Given { token, at: now, ends, answer: None });
        Ok(token)
    }

    /// Takes a token that a client presents, once, and answers it.
    pub(crate) fn redeem(&self, ticket: &Ticket) -> Result<Token, TokenError> {
        self.redeem_at(ticket, Instant::now())
    }

    fn redeem_at(&self, ticket: &Ticket, now: Instant) -> Result<Token, TokenError> {
        let answer = Token::random().map_err(TokenError::Random)?;
        let mut given = self.given.lock();
        forget_old(&mut given, now);
        let is_known = |given: &Given| given.token == ticket.token && given.answer.is_none();
        let idx = given.iter().position(is_known).ok_or(TokenError::Unknown)?;
        let known = &mut given[idx];
        let seen = known.ends;
        if ticket.ends.is_some_and(|ends| ends != seen) {
            given.remove(idx);
            return Err(TokenError::Ends(seen));
        }
        known.answer = Some(answer);
        Ok(answer)
    }

    /// The token that was answered so, once.
    pub fn confirm(&self, answer: &Token) -> Option<Token> {
        self.confirm_at(answer, Instant::now())
    }

    fn confirm_at(&self, answer: &Token, now: Instant) -> Option<Token> {
        let mut given = self.given.lock();
        forget_old(&mut given, now);
        let idx = given.iter().position(|given| given.answer == Some(*answer))?;
        Some(given.remove(idx)?.token)
    }
}

fn forget_old(given: &mut VecDeque<Given>, now: Instant) {
    while given.front().is_some_and(|oldest| now.saturating_duration_since(oldest.at) > TOKEN_LIFE) {
        given.pop_front();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(port: u16) -> Ends {
        Ends::new(([127, 0, 0, 1], port).into(), ([127, 0, 0, 1], 443).into())
    }

    /// Presented by the client of a connection.
    fn by(port: u16, token: Token) -> Ticket {
        Ticket { token, ends: Some(peer(port)) }
    }

    #[test]
    fn who_asks_too_often_crowds_out_nobody_but_himself() {
        let tokens = Tokens::default();
        let honest = tokens.issue(peer(1)).unwrap();
        let first = tokens.issue(peer(2)).unwrap();
        let last = (0..2 * TOKEN_COUNT_MAX).map(|_| tokens.issue(peer(2)).unwrap()).last().unwrap();
        assert_eq!(tokens.given.lock().len(), 1 + PEER_TOKEN_COUNT_MAX);
        assert!(tokens.redeem(&by(2, first)).is_err());
        tokens.redeem(&by(2, last)).unwrap();
        tokens.redeem(&by(1, honest)).unwrap();
    }

    #[test]
    fn a_token_is_presented_once_and_its_answer_confirmed_once() {
        let tokens = Tokens::default();
        let (token, other) = (tokens.issue(peer(1)).unwrap(), tokens.issue(peer(1)).unwrap());
        assert_ne!(token, other);
        assert!(tokens.confirm(&token).is_none(), "a token is no answer");
        let answer = tokens.redeem(&by(1, token)).unwrap();
        assert_ne!(answer, token, "who only knows the token does not know the answer");
        assert!(matches!(tokens.redeem(&by(1, token)), Err(TokenError::Unknown)), "a replay");
        assert!(matches!(tokens.redeem(&by(1, answer)), Err(TokenError::Unknown)), "an answer is no token");
        assert_eq!(tokens.confirm(&answer), Some(token));
        assert!(tokens.confirm(&answer).is_none() && tokens.redeem(&by(1, token)).is_err());
        tokens.redeem(&by(1, other)).unwrap();
    }

    #[test]
    fn a_token_that_came_by_anothers_connection_is_refused_and_gone() {
        let tokens = Tokens::default();
        let given = tokens.issue(peer(1)).unwrap();
        assert!(matches!(tokens.redeem(&by(2, given)), Err(TokenError::Ends(seen)) if seen == peer(1)));
        assert!(matches!(tokens.redeem(&by(1, given)), Err(TokenError::Unknown)), "it was presented");
        // One whose client doesn't mind by which connection it came.
        let given = tokens.issue(peer(1)).unwrap();
        tokens.redeem(&Ticket { token: given, ends: None }).unwrap();
    }

    #[test]
    fn old_tokens_and_answers_are_forgotten() {
        let (tokens, now) = (Tokens::default(), Instant::now());
        let in_time = now + TOKEN_LIFE;
        let late = in_time + Duration::from_millis(1);
        let [first, second, third] = [0, 1, 2].map(|_| tokens.issue_at(peer(1), now).unwrap());
        let answer = tokens.redeem_at(&by(1, first), in_time).unwrap();
        let other = tokens.redeem_at(&by(1, second), in_time).unwrap();
        assert_eq!(tokens.confirm_at(&answer, in_time), Some(first));
        assert!(tokens.redeem_at(&by(1, third), late).is_err());
        assert!(tokens.confirm_at(&other, late).is_none());
        assert!(tokens.given.lock().is_empty());
    }

    #[test]
    fn no_more_are_kept_than_a_bound_and_the_youngest_are_good() {
        let tokens = Tokens::default();
        let first = tokens.issue(peer(0)).unwrap();
        let asked = (0..TOKEN_COUNT_MAX).map(|idx| tokens.issue(peer(1 + idx as u16)).unwrap());
        let last = asked.last().unwrap();
        assert_eq!(tokens.given.lock().len(), TOKEN_COUNT_MAX);
        assert!(tokens.redeem(&by(0, first)).is_err());
        tokens.redeem(&by(TOKEN_COUNT_MAX as u16, last)).unwrap();
    }

    #[test]
    fn tokens_go_through_a_header_and_not_into_logs() {
        let token = Token::random().unwrap();
        let text = token.to_string();
        assert_eq!(text.parse::<Token>().unwrap(), token);
        assert!(!format!("{token:?}").contains(&text));
        for text in ["", "00", &text[1..], &format!("{text}0"), &"g".repeat(32), &"é".repeat(16)] {
            assert!(text.parse::<Token>().is_err(), "{text}");
        }
    }
}
