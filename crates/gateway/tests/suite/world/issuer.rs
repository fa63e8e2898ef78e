//! An issuer of tokens: its key pair, what it signs, and a server of its public keys that may lie.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

pub(crate) const ISSUER: &str = "https://host";
pub(crate) const AUDIENCE: &str = "probe";

/// A key pair of P-256.
pub(crate) struct TokenSigner {
    pub(crate) id: String,
    pair: EcdsaKeyPair,
}

pub(crate) fn now() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() as i64
}

pub(crate) fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let mut text = String::new();
    for three in bytes.chunks(3) {
        let bits =
            three.iter().fold(0_u32, |bits, byte| bits << 8 | u32::from(*byte)) << (8 * (3 - three.len()));
        for nth in 0..=three.len() {
            text.push(char::from(LETTERS[(bits >> (18 - 6 * nth)) as usize & 63]));
        }
    }
    text
}

impl TokenSigner {
    pub(crate) fn new(id: &str) -> TokenSigner {
        let random = SystemRandom::new();
        let scheme = &ECDSA_P256_SHA256_FIXED_SIGNING;
        let pkcs8 = EcdsaKeyPair::generate_pkcs8(scheme, &random).unwrap();
        let pair = EcdsaKeyPair::from_pkcs8(scheme, pkcs8.as_ref(), &random).unwrap();
        TokenSigner { id: id.to_owned(), pair }
    }

    /// Its point, uncompressed.
    pub(crate) fn public(&self) -> &[u8] {
        self.pair.public_key().as_ref()
    }

    pub(crate) fn jwk(&self) -> Value {
        let (x, y) = self.public()[1..].split_at(32);
        json!({"kty": "EC", "crv": "P-256", "use": "sig", "kid": self.id, "x": base64(x), "y": base64(y)})
    }

    /// The claims that are accepted, for a subject.
    pub(crate) fn claims(subject: &str) -> Value {
        json!({"iss": ISSUER, "aud": AUDIENCE, "sub": subject, "exp": now() + 600})
    }

    pub(crate) fn sign(&self, claims: &Value) -> String {
        self.sign_with(&json!({"alg": "ES256", "typ": "JWT", "kid": self.id}), claims)
    }

    pub(crate) fn sign_with(&self, header: &Value, claims: &Value) -> String {
        let message =
            format!("{}.{}", base64(header.to_string().as_bytes()), base64(claims.to_string().as_bytes()));
        let signature = self.pair.sign(&SystemRandom::new(), message.as_bytes()).unwrap();
        format!("{message}.{}", base64(signature.as_ref()))
    }

    pub(crate) fn token(&self, subject: &str) -> String {
        self.sign(&TokenSigner::claims(subject))
    }
}

pub(crate) fn key_set(signers: &[&TokenSigner]) -> String {
    json!({"keys": signers.iter().map(|signer| signer.jwk()).collect::<Vec<_>>()}).to_string()
}

/// What a server of keys answers.
#[derive(Clone)]
pub(crate) enum KeyAnswer {
    Keys(String),
    /// A status line of another kind.
    Status(u16),
    /// A gigabyte.
    Endless,
    /// Nothing.
    Hang,
}

/// A server of keys, until it is dropped.
pub(crate) struct KeyServer {
    pub(crate) uri: String,
    answer: Arc<Mutex<KeyAnswer>>,
    pub(crate) asked: Arc<AtomicUsize>,
    task: JoinHandle<()>,
}

impl Drop for KeyServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl KeyServer {
    pub(crate) async fn start(answer: KeyAnswer) -> KeyServer {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let uri = format!("http://{}/keys", listener.local_addr().unwrap());
        let (answer, asked) = (Arc::new(Mutex::new(answer)), Arc::new(AtomicUsize::new(0)));
        let (own, count) = (answer.clone(), asked.clone());
        let task = tokio::spawn(async move {
            let mut held = Vec::new();
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut head = [0; 1024];
                drop(stream.read(&mut head).await);
                count.fetch_add(1, Ordering::SeqCst);
                let answer = own.lock().clone();
                match answer {
                    KeyAnswer::Keys(body) => {
                        let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", body.len());
                        drop(stream.write_all((head + &body).as_bytes()).await);
                    }
                    KeyAnswer::Status(code) => {
                        let head = format!("HTTP/1.1 {code} No\r\ncontent-length: 0\r\n\r\n");
                        drop(stream.write_all(head.as_bytes()).await);
                    }
                    KeyAnswer::Endless => {
                        let head = "HTTP/1.1 200 OK\r\ncontent-length: 1073741824\r\n\r\n";
                        drop(stream.write_all(head.as_bytes()).await);
                        let spaces = vec![b' '; 64 << 10];
                        while stream.write_all(&spaces).await.is_ok() {}
                    }
                    KeyAnswer::Hang => held.push(stream),
                }
            }
        });
        KeyServer { uri, answer, asked, task }
    }

    pub(crate) fn answer(&self, answer: KeyAnswer) {
        *self.answer.lock() = answer;
    }
}
