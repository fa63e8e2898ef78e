//! `tollfree top` and `tollfree ctl` from the outside, with a gateway in this process.

use serde_json::Value;
use tollfree_gateway::{Config, Gateway};

use crate::run::{Scratch, tollfree};

#[test]
fn a_gateway_is_looked_at_and_changed() {
    let scratch = Scratch::new();
    let directory = tempfile::tempdir().unwrap();
    let socket = format!("shm://{}", directory.path().join("backends.sock").display());
    let config = Config::from_toml(&format!("[backends]\nsocket = \"{socket}\"\n")).unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let gateway = runtime.block_on(Gateway::bind(config)).unwrap();
    assert_eq!(gateway.addresses()["backends"], socket);
    runtime.spawn(gateway.run(std::future::pending()));
    top_looks_at_it(&scratch, &socket, std::process::id());
    ctl_changes_it(&scratch, &socket);
    assert_eq!(scratch.leftovers(), Vec::<String>::new());
}

fn top_looks_at_it(scratch: &Scratch, socket: &str, pid: u32) {
    let top = |arguments: &[&str]| {
        tollfree(scratch).args(["top", socket, "--interval", "0.05"]).args(arguments).output().unwrap()
    };
    let shown = top(&["--once", "--json"]);
    assert!(shown.status.success(), "{}", String::from_utf8_lossy(&shown.stderr));
    let shown: Value = serde_json::from_slice(&shown.stdout).expect("JSON");
    assert_eq!(shown["pid"], pid);
    assert!(
        shown["interval_ms"].as_u64().unwrap() >= 50 && shown["groups"] == Value::Array(vec![]),
        "{shown}"
    );
    let words = String::from_utf8(top(&["--once"]).stdout).unwrap();
    assert!(
        words.starts_with(&format!("gateway {pid}, up ")) && words.contains("nothing was refused"),
        "{words}"
    );
    let live = top(&[]);
    assert_eq!(live.status.code(), Some(2), "there is no terminal");
    assert!(String::from_utf8_lossy(&live.stderr).contains("add --once"));
    let other = tollfree(scratch).args(["top", "shm:///run/no/such.sock", "--once"]).output().unwrap();
    assert_eq!(other.status.code(), Some(1));
    let words = String::from_utf8_lossy(&other.stderr).into_owned();
    assert!(words.contains("no gateway answers at /run/no/such.sock.control"), "{words}");
}

fn ctl_changes_it(scratch: &Scratch, socket: &str) {
    let ctl = |arguments: &[&str]| {
        let output = tollfree(scratch).args(["ctl", "--socket", socket]).args(arguments).output().unwrap();
        let words = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (output.status.code(), words(&output.stdout), words(&output.stderr))
    };
    let get = |name: &str| ctl(&["get", name]).1;
    assert_eq!(get("load_balancing.policy"), "least_outstanding\n");
    assert_eq!(ctl(&["set", "load_balancing.policy", "affinity"]).1, "load_balancing.policy = affinity\n");
    assert_eq!(get("load_balancing.policy"), "affinity\n");
    let (code, _, words) = ctl(&["set", "load_balancing.depth", "-1"]);
    assert!(code == Some(2) && words.contains("load_balancing.depth"), "{words}");
    assert_eq!(get("load_balancing.depth"), "0\n");
    let (code, _, words) = ctl(&["get", "load_balancing.none"]);
    assert!(code == Some(2) && words.contains("ctl show"), "{words}");
    let all: Value = serde_json::from_str(&ctl(&["show", "--json"]).1).expect("JSON");
    let find = |name: &str| all.as_array().unwrap().iter().find(|register| register["name"] == name).unwrap();
    assert_eq!(find("load_balancing.policy")["origin"], "ctl");
    assert_eq!(
        (&find("limits.idle_ms")["unit"], &find("limits.idle_ms")["origin"]),
        (&"ms".into(), &"default".into())
    );
    let shown = ctl(&["show"]).1;
    assert!(shown.contains("load_balancing.functions"));
    let line = |name: &str| shown.lines().find(|line| line.starts_with(name)).unwrap().to_owned();
    assert!(
        line("device.spin_us").contains("memory only") && line("device.poll_load").contains("memory only")
    );
    assert!(!line("device.batch").contains("memory only"), "{shown}");
    assert_eq!(ctl(&["set", "device.doorbell", "coherent:4"]).1, "device.doorbell = coherent:4\n");
    let (code, _, words) = ctl(&["set", "device.batch", "65"]);
    assert!(code == Some(2) && words.contains("1 to 64"), "{words}");
    assert_eq!(get("device.batch"), "auto\n");
    let connections: Value = serde_json::from_str(&ctl(&["connections", "--json"]).1).expect("JSON");
    assert!(connections.is_array() && ctl(&["connections"]).1.contains("under way"), "{connections}");
    for arguments in [["connections", "c999999"], ["close", "c999999"]] {
        let (code, _, words) = ctl(&arguments);
        assert!(code == Some(2) && words.contains("ctl connections"), "{words}");
    }
    let absent =
        tollfree(scratch).args(["ctl", "--socket", "shm:///run/no/such.sock", "show"]).output().unwrap();
    assert_eq!(absent.status.code(), Some(1));
}
