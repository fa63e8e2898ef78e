//! Policies by what clients' certificates say.

use tollfree_stubs::probe::Ask;
use tollfree_stubs::probe::probe_client::ProbeClient;
use tonic::Code;

use super::reload::reload;
use super::tls::{self, Authority};

#[tokio::test]
async fn names_of_certificates_decide() {
    let authority = Authority::new();
    let lab = tls::start(&authority, true).await;
    let _attached = lab.attach("default").await;
    let path = |name: &str| lab.file(name).display().to_string();
    let tls = format!(
        "listeners.world.tls = {{ certificate = \"{}\", key = \"{}\", client_ca = \"{}\" }}\nlisteners.world.policy = \"p\"\n",
        path("certificate.pem"),
        path("key.pem"),
        path("ca.pem")
    );
    let mut client = ProbeClient::new(tls::connect_as(&lab, &authority, "orders").await);
    for (identity, may) in [
        ("spiffe://example/orders", true),
        ("spiffe://example/*", true),
        ("spiffe://example/order", false),
        ("spiffe://other/*", false),
        ("dns:orders", true),
        ("dns:ORDERS", true),
        ("dns:*.orders", false),
        ("subject:*the orders*", true),
        ("subject:orders", false),
        ("jwt:*", false),
        ("any", true),
        ("none", false),
    ] {
        let rule =
            format!("[policies.p]\nrules = [{{ action = \"allow\", identities = [\"{identity}\"] }}]\n");
        reload(&lab, &(tls.clone() + &rule)).await.unwrap();
        match client.unary(Ask::default()).await {
            Ok(_) => assert!(may, "{identity}"),
            Err(status) => assert!(!may && status.code() == Code::PermissionDenied, "{identity}: {status}"),
        }
    }
}
