//! The page of figures and the control socket beside those who connect and ask for nothing, and what the page forgets.

use rustix::process::{Resource, getrlimit};
use tokio::net::{TcpStream, UnixStream};

use super::lab::{Lab, backend_connections_of};
use super::reload::reload;

/// Many more than read at once: 1,000, and no more than half of the descriptors of this process, which other tests need too.
fn idle_count() -> usize {
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    (limit / 2).min(1000) as usize
}

#[tokio::test]
async fn who_connects_and_asks_for_nothing_keeps_nobody_from_the_figures() {
    let lab = Lab::start("").await;
    let mut idle = Vec::new();
    for count in 0..idle_count() {
        idle.push(TcpStream::connect(lab.metrics_address()).await.unwrap());
        if count % 100 == 0 {
            lab.figure("tollfree_gateway_connections").await;
        }
    }
    for _ in 0..10 {
        lab.figure("tollfree_gateway_connections").await;
    }
}

#[tokio::test]
async fn who_connects_and_asks_for_nothing_keeps_nobody_from_the_control_socket() {
    let lab = Lab::start("").await;
    let path = lab.file("backends.sock.control");
    let mut idle = Vec::new();
    for _ in 0..idle_count() {
        idle.push(UnixStream::connect(&path).await.unwrap());
    }
    let state = lab.control("/state").await;
    assert!(state.starts_with("HTTP/1.1 200") && state.contains("\"groups\""), "{state:.300}");
}

#[tokio::test]
async fn figures_of_a_group_that_has_left_the_config_leave_the_page() {
    let lab = Lab::start("[groups.old]\n[groups.kept]\n").await;
    let attached = lab.attach("old").await;
    lab.client().await.unary(tollfree_stubs::probe::Ask::default()).await.unwrap();
    assert!(lab.page().await.contains("group=\"old\""));
    reload(&lab, "[groups.kept]\n").await.unwrap();
    lab.until_figure(&backend_connections_of("old"), |count| count == 0.0).await;
    drop(attached);
    let begun = tokio::time::Instant::now();
    while lab.page().await.contains("group=\"old\"") {
        assert!(begun.elapsed() < super::lab::PATIENCE, "{}", lab.page().await);
    }
}
