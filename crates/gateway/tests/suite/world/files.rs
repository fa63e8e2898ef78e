//! Files that a config names and that are no files: FIFOs, devices, directories, what is too long. Nothing waits for them.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc;

use tollfree_gateway::{Config, Gateway, Source};
use tollfree_stubs::probe::Ask;

use super::lab::{Lab, PATIENCE};
use super::tls::{Authority, start};

const CERTIFICATE_FAILURES: &str = "tollfree_gateway_certificate_reload_failures_total";

/// Fails instead of standing still: what waits for a file holds the thread of its runtime.
fn in_time(test: impl Future<Output = ()> + Send + 'static) {
    let (over, is_over) = mpsc::channel();
    let thread = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(test);
        drop(runtime);
        over.send(()).unwrap();
    });
    match is_over.recv_timeout(PATIENCE) {
        Err(mpsc::RecvTimeoutError::Timeout) => panic!("it waits for a file"),
        _ => thread.join().unwrap(),
    }
}

fn make_fifo(path: &Path) {
    assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
}

/// A FIFO, a link to one, a device, a directory, and a file without end, as far as its length says.
fn odd_files(directory: &Path) -> [(PathBuf, &'static str); 5] {
    let at = |name: &str| directory.join(name);
    make_fifo(&at("fifo"));
    symlink(at("fifo"), at("link")).unwrap();
    std::fs::create_dir(at("directory")).unwrap();
    std::fs::File::create(at("long")).unwrap().set_len(1 << 40).unwrap();
    [
        (at("fifo"), "is a FIFO"),
        (at("link"), "is a FIFO"),
        ("/dev/null".into(), "is a device"),
        (at("directory"), "is a directory"),
        (at("long"), "is longer than"),
    ]
}

/// For each key of a config that names a file: a config in which all others are of use.
fn configs(directory: &Path, file: &Path) -> Vec<(&'static str, String)> {
    let path = |name: &str| directory.join(name).display().to_string();
    let file = file.display();
    let (certificate, key, ca) = (path("certificate.pem"), path("key.pem"), path("ca.pem"));
    let listener = |certificate: &str, key: &str, ca: &str| {
        format!(
            "listeners.world.tls = {{ certificate = \"{certificate}\", key = \"{key}\", client_ca = \"{ca}\" }}\n"
        )
    };
    let stream = |certificate: &str, key: &str, ca: &str| {
        format!(
            "backends.stream = {{ address = \"127.0.0.1:0\", certificate = \"{certificate}\", key = \"{key}\", client_ca = \"{ca}\" }}\n"
        )
    };
    let odd = file.to_string();
    vec![
        ("listeners.world.tls", listener(&odd, &key, &ca)),
        ("listeners.world.tls", listener(&certificate, &odd, &ca)),
        ("listeners.world.tls", listener(&certificate, &key, &odd)),
        ("backends.stream", stream(&odd, &key, &ca)),
        ("backends.stream", stream(&certificate, &odd, &ca)),
        ("backends.stream", stream(&certificate, &key, &odd)),
        ("groups.g.descriptors", format!("groups.g.descriptors = \"{odd}\"\n")),
        ("egress.ca", format!("egress.ca = \"{odd}\"\n")),
    ]
}

#[test]
fn whatever_a_config_names_a_start_says_what_is_wrong_and_waits_for_nothing() {
    in_time(async {
        let directory = tempfile::tempdir().unwrap();
        let (certificate, key) = Authority::new().sign("localhost");
        for (name, pem) in [("certificate.pem", &certificate), ("key.pem", &key), ("ca.pem", &certificate)] {
            std::fs::write(directory.path().join(name), pem).unwrap();
        }
        let sockets = format!(
            "listeners.world.address = \"127.0.0.1:0\"\nbackends.socket = \"shm://{}\"\n",
            directory.path().join("backends.sock").display()
        );
        for (file, problem) in odd_files(directory.path()) {
            let name = file.display().to_string();
            for (key, text) in configs(directory.path(), &file) {
                let config = Config::from_toml(&format!("{sockets}{text}")).unwrap();
                let error = Gateway::bind(config).await.unwrap_err().to_string();
                for words in [key, &name, problem] {
                    assert!(error.contains(words), "{words:?} is not in {error:?}");
                }
            }
            let error = Config::read(&[Source::File(file)]).unwrap_err().to_string();
            assert!(error.contains(&name) && error.contains(problem), "{error}");
        }
    });
}

/// They become what they are while the gateway runs: it keeps what it has, calls go on, and its end waits for nothing.
#[test]
fn files_that_become_something_else_are_left_and_calls_go_on() {
    in_time(async {
        let authority = Authority::new();
        let lab = start(&authority, false).await;
        let plain = Lab::start("").await;
        let _attached = plain.attach("default").await;
        let mut client = plain.client().await;
        let certificate = lab.file("certificate.pem");
        std::fs::remove_file(&certificate).unwrap();
        make_fifo(&certificate);
        lab.until_figure(CERTIFICATE_FAILURES, |count| count >= 1.0).await;
        client.unary(Ask::default()).await.unwrap();
        let odd = tempfile::tempdir().unwrap();
        for (file, problem) in odd_files(odd.path()) {
            let name = file.display().to_string();
            let descriptors = format!("{}groups.g.descriptors = \"{name}\"\n", plain.sockets);
            for source in [Source::File(file), Source::Text { name: "new.toml".into(), text: descriptors }] {
                let error = plain.reloader.reload(&[source]).await.unwrap_err().to_string();
                assert!(error.contains(&name) && error.contains(problem), "{error}");
                client.unary(Ask::default()).await.unwrap();
            }
        }
        drop(client);
        lab.stopped().await;
        plain.stopped().await;
    });
}
