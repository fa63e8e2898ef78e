//! Proxies that a machine may have: how they are told to stand between two Unix sockets.

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::SplitSide;

/// What a proxy needs: its program, the file that it reads, and what is in it.
struct Setup {
    arguments: Vec<String>,
    config: String,
}

/// Where a plain tonic server listens, and where a proxy does.
pub(super) fn front(dir: &Path) -> PathBuf {
    dir.join("front.sock")
}

fn program(side: SplitSide) -> Option<&'static str> {
    match side {
        SplitSide::Envoy => Some("envoy"),
        SplitSide::Nginx => Some("nginx"),
        _ => None,
    }
}

/// Whether this machine has what a side needs.
///
/// # Errors
/// Words that begin with *not run*: a row that is not run for this is no failure.
pub(super) fn look_for(side: SplitSide) -> Result<(), String> {
    let Some(program) = program(side) else { return Ok(()) };
    let path = std::env::var_os("PATH").unwrap_or_default();
    let is_there = std::env::split_paths(&path).any(|dir| dir.join(program).is_file());
    if is_there { Ok(()) } else { Err(format!("not run: there is no {program} in PATH")) }
}

/// Becomes the proxy, which ends with its starter. Returns only if that can't be done.
pub(super) fn become_one(side: SplitSide, dir: &Path) -> String {
    let config = dir.join("proxy.conf");
    let (front, back) = (front(dir).display().to_string(), dir.join("tonic.sock").display().to_string());
    let setup = match side {
        SplitSide::Nginx => nginx(&config, dir, &front, &back),
        _ => envoy(&config, &front, &back),
    };
    if let Err(error) = std::fs::write(&config, setup.config) {
        return format!("cannot write {}: {error}", config.display());
    }
    let with_starter = rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL));
    if let Err(error) = with_starter {
        return format!("cannot end with the starter: {error}");
    }
    let program = program(side).unwrap_or_default();
    // Its words would be taken for answers.
    let error = Command::new(program).args(setup.arguments).stdout(std::io::stderr()).exec();
    format!("cannot become {program}: {error}")
}

fn nginx(config: &Path, dir: &Path, front: &str, back: &str) -> Setup {
    let place = dir.display();
    let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .iter()
        .map(|name| format!("  {name}_temp_path {place}/{name};\n"))
        .collect();
    let config_text = format!(
        "daemon off;\nmaster_process off;\npid {place}/nginx.pid;\nerror_log stderr error;\n\
         events {{ worker_connections 16384; }}\nhttp {{\n  access_log off;\n{temporary}  \
         keepalive_requests 1000000000;\n  client_max_body_size 0;\n  grpc_buffer_size 64k;\n  \
         upstream backends {{ server unix:{back}; keepalive 4096; keepalive_requests 1000000000; }}\n  \
         server {{\n    listen unix:{front} http2;\n    http2_max_concurrent_streams 4096;\n    \
         location / {{ grpc_pass grpc://backends; }}\n  }}\n}}\n"
    );
    Setup { arguments: vec!["-c".into(), config.display().to_string()], config: config_text }
}

fn envoy(config: &Path, front: &str, back: &str) -> Setup {
    let http2 = serde_json::json!({
        "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
            "@type": "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
            "explicit_http_config": { "http2_protocol_options": {} },
        }
    });
    let routes = serde_json::json!({
        "virtual_hosts": [{
            "name": "all",
            "domains": ["*"],
            "routes": [{ "match": { "prefix": "/" }, "route": { "cluster": "backends", "timeout": "0s" } }],
        }]
    });
    let manager = serde_json::json!({
        "@type": "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "front",
        "codec_type": "HTTP2",
        "route_config": routes,
        "http_filters": [{
            "name": "envoy.filters.http.router",
            "typed_config": { "@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router" },
        }],
    });
    let address = |path: &str| serde_json::json!({ "pipe": { "path": path } });
    let config_text = serde_json::json!({
        "static_resources": {
            "listeners": [{
                "name": "front",
                "address": address(front),
                "filter_chains": [{
                    "filters": [{
                        "name": "envoy.filters.network.http_connection_manager",
                        "typed_config": manager,
                    }],
                }],
            }],
            "clusters": [{
                "name": "backends",
                "type": "STATIC",
                "connect_timeout": "5s",
                "typed_extension_protocol_options": http2,
                // As many calls at once as nginx takes; unless told otherwise, 1024.
                "circuit_breakers": { "thresholds": [{ "max_requests": 16384, "max_pending_requests": 16384 }] },
                "load_assignment": {
                    "cluster_name": "backends",
                    "endpoints": [{ "lb_endpoints": [{ "endpoint": { "address": address(back) } }] }],
                },
            }],
        }
    });
    let arguments =
        ["--config-path", &config.display().to_string(), "--concurrency", "1", "--log-level", "error"];
    let arguments = arguments.iter().chain(&["--disable-hot-restart"]).map(|&argument| argument.to_owned());
    Setup { arguments: arguments.collect(), config: config_text.to_string() }
}
