//! Policies of listeners: who may call what, by certificate, token, header and address.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tollfree_control::ConnectionState;
use tollfree_stubs::probe::Ask;
use tollfree_stubs::probe::probe_client::ProbeClient;
use tonic::transport::Channel;
use tonic::{Code, Request, Status};

use super::issuer::{AUDIENCE, ISSUER, KeyAnswer, KeyServer, TokenSigner, base64, key_set, now};
use super::lab::{Lab, PATIENCE};
use super::reload::reload;

fn issuer(jwks: &str, more: &str) -> String {
    format!(
        "listeners.world.policy = \"p\"\n[jwt.main]\nissuer = \"{ISSUER}\"\naudiences = [\"{AUDIENCE}\"]\njwks = \"{jwks}\"\n{more}"
    )
}

/// A policy that lets in subjects of tokens.
fn tokens(jwks: &str, more: &str) -> String {
    issuer(
        jwks,
        &format!(
            "{more}[policies.p]\njwt = [\"main\"]\nrules = [{{ action = \"allow\", identities = [\"any\"] }}]\n"
        ),
    )
}

async fn call(client: &ProbeClient<Channel>, token: &str) -> Result<(), Status> {
    call_with(client, "authorization", &format!("Bearer {token}")).await
}

async fn call_with(client: &ProbeClient<Channel>, name: &'static str, value: &str) -> Result<(), Status> {
    let mut request = Request::new(Ask::default());
    if !name.is_empty() {
        request.metadata_mut().insert(name, value.parse().unwrap());
    }
    let mut client = client.clone();
    tokio::time::timeout(PATIENCE, client.unary(request)).await.expect("it ends").map(drop)
}

async fn start(signer: &TokenSigner) -> Lab {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("keys.json");
    std::fs::write(&file, key_set(&[signer])).unwrap();
    Lab::start_in(directory, &tokens(&file.display().to_string(), "leeway_ms = 0\n")).await
}

#[tokio::test]
async fn a_token_lets_its_caller_in_and_a_call_without_one_is_unauthenticated() {
    let signer = TokenSigner::new("a");
    let lab = start(&signer).await;
    let _attached = lab.attach("default").await;
    let client = lab.client().await;
    // Twice: the second time it is remembered.
    call(&client, &signer.token("alice")).await.unwrap();
    let token = signer.token("bob");
    call(&client, &token).await.unwrap();
    call(&client, &token).await.unwrap();
    let mut listed = TokenSigner::claims("carol");
    listed["aud"] = json!(["other", AUDIENCE]);
    listed["nbf"] = json!(now());
    call(&client, &signer.sign(&listed)).await.unwrap();
    // One that names no key, of an issuer that has one.
    call(&client, &signer.sign_with(&json!({"alg": "ES256"}), &TokenSigner::claims("dave"))).await.unwrap();
    for (name, value) in [("", ""), ("authorization", "Basic YTpi"), ("authorization", "Bearer")] {
        let status = call_with(&client, name, value).await.unwrap_err();
        assert_eq!(status.code(), Code::Unauthenticated, "{name}: {value}");
        assert!(status.message().contains("authorization: Bearer"), "{status}");
    }
    assert_eq!(lab.refused("unauthenticated").await, 3.0);
}

/// Each token that is wrong, and a word of why.
fn wrong_tokens(signer: &TokenSigner) -> Vec<(String, &'static str)> {
    let with = |name: &str, value: Value| {
        let mut claims = TokenSigner::claims("alice");
        claims[name] = value;
        signer.sign(&claims)
    };
    let without = |name: &str| {
        let mut claims = TokenSigner::claims("alice");
        claims.as_object_mut().unwrap().remove(name);
        signer.sign(&claims)
    };
    let good = signer.token("alice");
    let claims = TokenSigner::claims("alice");
    let unsigned = |header: Value| {
        format!("{}.{}.", base64(header.to_string().as_bytes()), base64(claims.to_string().as_bytes()))
    };
    let hs256 = {
        let header = json!({"alg": "HS256", "kid": signer.id});
        let message =
            format!("{}.{}", base64(header.to_string().as_bytes()), base64(claims.to_string().as_bytes()));
        let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, signer.public());
        format!("{message}.{}", base64(ring::hmac::sign(&key, message.as_bytes()).as_ref()))
    };
    let header_of = |header: Value| signer.sign_with(&header, &claims);
    let (message, signature) = good.rsplit_once('.').unwrap();
    let forged = {
        let (header, _) = message.split_once('.').unwrap();
        let claims = TokenSigner::claims("admin").to_string();
        format!("{header}.{}.{signature}", base64(claims.as_bytes()))
    };
    vec![
        (unsigned(json!({"alg": "none"})), "can't be read"),
        (unsigned(json!({"alg": "None", "kid": signer.id})), "can't be read"),
        (unsigned(json!({"alg": "ES256", "kid": signer.id})), "signature"),
        (hs256, "algorithm"),
        (header_of(json!({"alg": "RS256", "kid": signer.id})), "algorithm"),
        (header_of(json!({"alg": "ES384"})), "algorithm"),
        (header_of(json!({"alg": "ES256", "kid": "other"})), "kid"),
        (header_of(json!({"alg": "ES256", "kid": signer.id, "crit": ["exp"]})), "crit"),
        (TokenSigner::new(&signer.id).token("alice"), "signature"),
        (forged, "signature"),
        (with("exp", json!(now() - 5)), "expired"),
        (with("exp", json!(-1)), ""),
        (with("exp", json!("never")), ""),
        (with("exp", json!(null)), ""),
        (without("exp"), "exp"),
        (with("nbf", json!(now() + 60)), "not valid yet"),
        (with("nbf", json!("later")), ""),
        (with("aud", json!("else")), "audience"),
        (with("aud", json!([])), "audience"),
        (without("aud"), "aud"),
        (with("iss", json!("https://localhost")), "not trusted"),
        (with("iss", json!([ISSUER])), "issuer"),
        (without("iss"), "issuer"),
        (with("fill", json!("x".repeat(12 << 10))), "16384"),
        (format!("{message}.{}", "A".repeat(86)), "signature"),
        (format!("{good}.{signature}"), ""),
        (message.to_owned(), ""),
        ("..".to_owned(), ""),
        ("a.b.c".to_owned(), ""),
        ("-".to_owned(), ""),
        (format!("{good}="), ""),
    ]
}

#[tokio::test]
async fn wrong_tokens_of_each_kind_are_refused_with_a_reason() {
    let signer = TokenSigner::new("a");
    // Such a long token is let through to where it is looked at.
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("keys.json");
    std::fs::write(&file, key_set(&[&signer])).unwrap();
    let config =
        format!("limits.header_bytes = 65536\n{}", tokens(&file.display().to_string(), "leeway_ms = 0\n"));
    let lab = Lab::start_in(directory, &config).await;
    let _attached = lab.attach("default").await;
    let client = lab.client().await;
    let wrong = wrong_tokens(&signer);
    for (token, word) in &wrong {
        let status = call(&client, token).await.expect_err(token);
        assert_eq!(status.code(), Code::Unauthenticated, "{status} for {token}");
        assert!(status.message().contains(word), "{word} in {status}");
    }
    assert_eq!(lab.refused("unauthenticated").await, wrong.len() as f64);
    // A token that is of no use is refused where none is needed, too; so are two.
    let open = tokens(&lab.file("keys.json").display().to_string(), "").replace("\"any\"", "\"none\"");
    reload(&lab, &open).await.unwrap();
    call_with(&client, "", "").await.unwrap();
    assert_eq!(call(&client, &wrong[0].0).await.unwrap_err().code(), Code::Unauthenticated);
    let mut request = Request::new(Ask::default());
    for _ in 0..2 {
        let value = format!("Bearer {}", signer.token("alice"));
        request.metadata_mut().append("authorization", value.parse().unwrap());
    }
    let status = client.clone().unary(request).await.unwrap_err();
    assert!(status.code() == Code::Unauthenticated && status.message().contains("several"), "{status}");
}

#[tokio::test]
async fn an_accepted_token_ends_with_its_time() {
    let signer = TokenSigner::new("a");
    let lab = start(&signer).await;
    let _attached = lab.attach("default").await;
    let client = lab.client().await;
    let mut claims = TokenSigner::claims("alice");
    claims["exp"] = json!(now() + 2);
    let token = signer.sign(&claims);
    call(&client, &token).await.unwrap();
    let began = Instant::now();
    while call(&client, &token).await.is_ok() {
        assert!(began.elapsed() < PATIENCE, "it is accepted without an end");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn keys_are_rotated_and_a_server_of_keys_that_fails_leaves_the_old_ones() {
    let (old, new) = (TokenSigner::new("old"), TokenSigner::new("new"));
    let server = KeyServer::start(KeyAnswer::Keys(key_set(&[&old]))).await;
    let lab = Lab::start(&tokens(&server.uri, "refresh_ms = 1000\n")).await;
    let _attached = lab.attach("default").await;
    let client = lab.client().await;
    call(&client, &old.token("alice")).await.unwrap();
    assert_eq!(call(&client, &new.token("alice")).await.unwrap_err().code(), Code::Unauthenticated);
    let failures = "tollfree_gateway_jwks_failures_total";
    for answer in [
        KeyAnswer::Status(500),
        KeyAnswer::Status(302),
        KeyAnswer::Keys("nonsense".into()),
        KeyAnswer::Keys("{\"keys\": []}".into()),
        KeyAnswer::Keys("{\"keys\": [{\"kty\": \"oct\", \"k\": \"c2VjcmV0\"}, 7, null]}".into()),
        KeyAnswer::Endless,
        KeyAnswer::Hang,
    ] {
        let before = lab.figure(failures).await;
        server.answer(answer);
        lab.until_figure(failures, |count| count > before).await;
        call(&client, &old.token("alice")).await.unwrap();
    }
    server.answer(KeyAnswer::Keys(key_set(&[&new])));
    let began = Instant::now();
    while call(&client, &new.token("alice")).await.is_err() {
        assert!(began.elapsed() < PATIENCE, "the new key is not used");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(call(&client, &old.token("alice")).await.unwrap_err().code(), Code::Unauthenticated);
}

#[tokio::test]
async fn an_unknown_key_has_the_keys_read_again_but_not_each_time() {
    let (old, new) = (TokenSigner::new("old"), TokenSigner::new("new"));
    let server = KeyServer::start(KeyAnswer::Hang).await;
    let lab = Lab::start(&tokens(&server.uri, "")).await;
    let _attached = lab.attach("default").await;
    let client = lab.client().await;
    // The first keys are being read, and do not come.
    let status = call(&client, &old.token("alice")).await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable, "{status}");
    server.answer(KeyAnswer::Keys(key_set(&[&old])));
    let began = Instant::now();
    while call(&client, &old.token("alice")).await.is_err() {
        assert!(began.elapsed() < PATIENCE, "the first keys are not used");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    server.answer(KeyAnswer::Keys(key_set(&[&old, &new])));
    let asked = server.asked.load(Ordering::SeqCst);
    // As soon as they may be read again, one call has it done and is answered.
    while call(&client, &new.token("alice")).await.is_err() {
        assert!(began.elapsed() < PATIENCE, "the new key is not used");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let began = Instant::now();
    while began.elapsed() < Duration::from_millis(500) {
        call(&client, &TokenSigner::new("nobody").token("alice")).await.unwrap_err();
    }
    assert_eq!(server.asked.load(Ordering::SeqCst) - asked, 1);
}

#[tokio::test]
async fn keys_of_a_file_are_read_when_it_changes() {
    let (old, new) = (TokenSigner::new("old"), TokenSigner::new("new"));
    let lab = start(&old).await;
    let _attached = lab.attach("default").await;
    let client = lab.client().await;
    call(&client, &old.token("alice")).await.unwrap();
    std::fs::write(lab.file("keys.json"), "{").unwrap();
    lab.until_figure("tollfree_gateway_jwks_failures_total", |count| count > 0.0).await;
    call(&client, &old.token("alice")).await.unwrap();
    std::fs::write(lab.file("keys.json"), key_set(&[&old, &new])).unwrap();
    let began = Instant::now();
    while call(&client, &new.token("alice")).await.is_err() {
        assert!(began.elapsed() < PATIENCE, "the new key is not used");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn rules_decide_in_order_by_identity_claim_method_header_and_address() {
    let signer = TokenSigner::new("a");
    let lab = start(&signer).await;
    let _attached = lab.attach("default").await;
    let client = lab.client().await;
    let jwks = lab.file("keys.json").display().to_string();
    let policy = |rules: &str, more: &str| {
        issuer(&jwks, &format!("[policies.p]\njwt = [\"main\"]\nrules = [{rules}]\n{more}"))
    };
    let mut reader = TokenSigner::claims("alice");
    reader["scope"] = json!("probe:read other");
    let (reader, bob) = (signer.sign(&reader), signer.token("bob@example"));
    let allowed = async |config: String, token: &str, is_allowed: bool| {
        reload(&lab, &config).await.unwrap();
        let called = call(&client, token).await;
        match is_allowed {
            true => called.unwrap_or_else(|status| panic!("{status}: {config}")),
            false => assert_eq!(called.unwrap_err().code(), Code::PermissionDenied, "{config}"),
        }
    };
    let allow = |what: &str| policy(&format!("{{ action = \"allow\", {what} }}"), "");
    for (what, reader_may, bob_may) in [
        ("identities = [\"jwt:alice\"]", true, false),
        ("identities = [\"jwt:*@example\"]", false, true),
        ("identities = [\"any\"]", true, true),
        ("identities = [\"none\", \"dns:*\", \"subject:*\", \"spiffe://*\"]", false, false),
        ("claims = { scope = \"probe:read\" }", true, false),
        ("claims = { sub = \"bob*\", aud = \"probe\" }", false, true),
        ("claims = { sub = \"bob*\", scope = \"*\" }", false, false),
        ("methods = [\"tollfree.probe.v1.Probe\"]", true, true),
        ("methods = [\"tollfree.probe.v1.Probe/Unary\"]", true, true),
        ("methods = [\"tollfree.probe.v1.Probe/Down\"]", false, false),
        ("headers = { user-agent = \"*tonic*\" }", true, true),
        ("headers = { user-agent = \"curl*\" }", false, false),
        ("addresses = [\"127.0.0.0/8\"]", true, true),
        ("addresses = [\"192.0.2.0/24\", \"::/0\"]", false, false),
    ] {
        allowed(allow(what), &reader, reader_may).await;
        allowed(allow(what), &bob, bob_may).await;
    }
    let rules =
        "{ action = \"deny\", identities = [\"jwt:alice\"] }, { action = \"allow\", identities = [\"any\"] }";
    allowed(policy(rules, ""), &reader, false).await;
    allowed(policy(rules, ""), &bob, true).await;
    let deny = "{ action = \"deny\", identities = [\"jwt:alice\"] }";
    allowed(policy(deny, "default = \"allow\"\n"), &bob, true).await;
    allowed(policy(deny, "default = \"allow\"\n"), &reader, false).await;
    allowed(policy(deny, ""), &bob, false).await;
    assert!(lab.refused("denied").await > 5.0);
}

#[tokio::test]
async fn a_listener_serves_the_groups_and_methods_of_its_policy() {
    let routes = "[groups.a]\n[groups.b]\n[routes]\n\"tollfree.probe.v1.Probe\" = \"a\"\n";
    let policy = |more: &str| format!("listeners.world.policy = \"p\"\n{routes}[policies.p]\n{more}\n");
    let lab = Lab::start(&policy("groups = [\"a\"]")).await;
    let _attached = lab.attach("a").await;
    let client = lab.client().await;
    call_with(&client, "", "").await.unwrap();
    for more in ["groups = [\"b\"]", "methods = [\"tollfree.probe.v1.Probe/Down\", \"acme.v1.Orders\"]"] {
        reload(&lab, &policy(more)).await.unwrap();
        assert_eq!(call_with(&client, "", "").await.unwrap_err().code(), Code::Unimplemented, "{more}");
    }
    reload(&lab, &policy("methods = [\"tollfree.probe.v1.Probe/Unary\"]")).await.unwrap();
    call_with(&client, "", "").await.unwrap();
    // The gateway's own services are methods like others.
    assert_eq!(lab.health("").await.unwrap_err(), Code::Unimplemented);
}

/// Who serves a call may come while it waits.
#[tokio::test]
async fn a_call_that_waits_is_not_given_to_a_group_that_its_listener_does_not_serve() {
    let config = "listeners.world.policy = \"p\"\nlimits.attach_wait_ms = 60000\n[groups.a]\n[groups.b]\n[policies.p]\ngroups = [\"a\"]\n";
    let lab = Lab::start(config).await;
    let client = lab.client().await;
    let waiting = tokio::spawn({
        let client = client.clone();
        async move { call_with(&client, "", "").await }
    });
    let began = Instant::now();
    let waits = |connection: &ConnectionState| connection.kind == "world" && connection.calls == 1;
    while !ConnectionState::read_all(&lab.backends()).await.unwrap().iter().any(waits) {
        assert!(began.elapsed() < PATIENCE, "the call does not come");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let other = lab.attach("b").await;
    let status = tokio::time::timeout(PATIENCE, waiting).await.unwrap().unwrap().unwrap_err();
    assert_eq!(status.code(), Code::Unimplemented, "{status}");
    assert_eq!(other.probe.begun.load(Ordering::SeqCst), 0);
}
