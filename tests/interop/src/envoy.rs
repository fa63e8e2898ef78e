//! An Envoy in front of a gateway.

use std::path::Path;

use serde_json::{Value, json};
use tokio::process::{Child, Command};

use crate::Error;
use crate::foreign::{self, Lab, spawn};

/// What Envoy is told: HTTP/2 on one port, all of it to another, without a deadline of its own.
fn config(port: u16, gateway_port: u16) -> Value {
    let address = |port: u16| json!({ "socket_address": { "address": "127.0.0.1", "port_value": port } });
    let kind = |name: &str| format!("type.googleapis.com/envoy.extensions.{name}");
    let manager = json!({
        "@type": kind("filters.network.http_connection_manager.v3.HttpConnectionManager"),
        "stat_prefix": "outside",
        "codec_type": "HTTP2",
        "route_config": { "virtual_hosts": [{
            "name": "all",
            "domains": ["*"],
            "routes": [{ "match": { "prefix": "/" }, "route": { "cluster": "gateway", "timeout": "0s" } }],
        }] },
        "http_filters": [{
            "name": "envoy.filters.http.router",
            "typed_config": { "@type": kind("filters.http.router.v3.Router") },
        }],
    });
    let listener = json!({
        "address": address(port),
        "filter_chains": [{ "filters": [{
            "name": "envoy.filters.network.http_connection_manager",
            "typed_config": manager,
        }] }],
    });
    let cluster = json!({
        "name": "gateway",
        "type": "STATIC",
        "load_assignment": {
            "cluster_name": "gateway",
            "endpoints": [{ "lb_endpoints": [{ "endpoint": { "address": address(gateway_port) } }] }],
        },
        "typed_extension_protocol_options": { "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
            "@type": kind("upstreams.http.v3.HttpProtocolOptions"),
            "explicit_http_config": { "http2_protocol_options": {} },
        } },
    });
    json!({ "static_resources": { "listeners": [listener], "clusters": [cluster] } })
}

/// Starts one on a port; it is killed when it is dropped.
pub(crate) fn start(program: &Path, lab: &Lab, port: u16) -> Result<Child, Error> {
    let file = lab.path("envoy.json");
    std::fs::write(&file, config(port, lab.gateway_plain_port).to_string())?;
    let mut command = Command::new(program);
    command.arg("--config-path").arg(file);
    command.args(["--use-dynamic-base-id", "--concurrency", "1", "--log-level", "error"]);
    spawn(&mut command)
}

/// Its version, as it says.
pub(crate) async fn version(program: &Path) -> Result<String, Error> {
    let said = foreign::run(program, ["--version"]).await?;
    // "…/envoy version: <commit>/1.40.0/Clean/RELEASE/BoringSSL"
    let version =
        said.out.split('/').find(|part| part.starts_with(|c: char| c.is_ascii_digit()) && part.contains('.'));
    version.map(str::to_owned).ok_or_else(|| format!("Envoy says no version: {}", said.final_status()).into())
}
