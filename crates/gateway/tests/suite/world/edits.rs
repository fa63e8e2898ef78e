//! Headers that policies remove, set, and copies of claims, and the name of the caller in the access log.

use serde_json::{Value, json};
use tollfree_stubs::probe::{Ask, Fault};
use tonic::{Code, Request};

use super::issuer::{AUDIENCE, ISSUER, TokenSigner, key_set};
use super::lab::Lab;
use super::reload::reload;

#[tokio::test]
async fn headers_of_requests_and_answers_are_edited_and_claims_can_not_be_forged() {
    let signer = TokenSigner::new("a");
    let directory = tempfile::tempdir().unwrap();
    let log = directory.path().join("access.log");
    std::fs::write(directory.path().join("keys.json"), key_set(&[&signer])).unwrap();
    let config = format!(
        "access_log.path = \"{}\"\nlisteners.world.policy = \"p\"\n[jwt.main]\nissuer = \"{ISSUER}\"\naudiences = [\"{AUDIENCE}\"]\njwks = \"{}\"\n\
         [policies.p]\njwt = [\"main\"]\n[policies.p.headers.request]\nremove = [\"x-secret\", \"authorization\"]\nset = {{ x-edge = \"public\" }}\n\
         claims = {{ x-user = \"sub\", x-scope = \"scope\", x-level = \"level\" }}\n\
         [policies.p.headers.answer]\nremove = [\"x-said\", \"x-trailer\"]\nset = {{ x-frame = \"deny\" }}\n",
        log.display(),
        directory.path().join("keys.json").display()
    );
    let lab = Lab::start_in(directory, &config).await;
    let _attached = lab.attach("default").await;
    let mut client = lab.client().await;
    let request = |token: Option<String>| {
        let mut request = Request::new(Ask::default());
        for name in ["x-secret", "x-edge", "x-user", "x-scope", "x-level", "x-other"] {
            for value in ["forged", "again"] {
                request.metadata_mut().append(name, value.parse().unwrap());
            }
        }
        if let Some(token) = token {
            request.metadata_mut().insert("authorization", format!("Bearer {token}").parse().unwrap());
        }
        request
    };
    let edited = |headers: &[String]| {
        let mut edited: Vec<_> = headers
            .iter()
            .filter(|header| header.starts_with("x-") || header.starts_with("auth"))
            .cloned()
            .collect();
        edited.sort();
        edited
    };
    let mut claims = TokenSigner::claims("Zo\u{eb} 100%");
    claims["scope"] = json!("read write");
    claims["level"] = json!(7);
    let answer = client.unary(request(Some(signer.sign(&claims)))).await.unwrap();
    assert!(!answer.metadata().contains_key("x-said"));
    assert_eq!(answer.metadata().get("x-frame").unwrap(), "deny");
    let all = [
        "x-edge: public",
        "x-level: 7",
        "x-other: again",
        "x-other: forged",
        "x-scope: read",
        "x-scope: write",
        "x-user: Zo%C3%AB 100%25",
    ];
    assert_eq!(edited(&answer.get_ref().headers), all);
    // Without a token, nothing stands by the names of claims.
    let answer = client.unary(request(None)).await.unwrap();
    assert_eq!(edited(&answer.get_ref().headers), ["x-edge: public", "x-other: again", "x-other: forged"]);
    // Trailers, and answers that the gateway gives.
    let fault = Some(Fault { code: Code::Aborted as i32, ..Fault::default() });
    let status = client.unary(Ask { fault, ..Ask::default() }).await.unwrap_err();
    assert!(!status.metadata().contains_key("x-trailer"), "{status:?}");
    let bad = client.unary(request(Some("bad".into()))).await.unwrap_err();
    assert_eq!(bad.code(), Code::Unauthenticated);

    let began = std::time::Instant::now();
    let lines = loop {
        let text = std::fs::read_to_string(&log).unwrap_or_default();
        let lines: Vec<Value> = text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
        if lines.len() >= 4 {
            break lines;
        }
        assert!(began.elapsed() < super::lab::PATIENCE);
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    };
    assert_eq!(lines[0]["identity"], "jwt:Zo\u{eb} 100%");
    assert_eq!(lines[1]["identity"], "");
    // Claims that are longer than headers may be are refused in words.
    reload(&lab, &format!("limits.header_bytes = 2048\n{config}")).await.unwrap();
    claims["level"] = json!("x".repeat(2000));
    let status = client.unary(request(Some(signer.sign(&claims)))).await.unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted, "{status}");
}
