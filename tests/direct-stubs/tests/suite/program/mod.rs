//! One user's program, compiled against what tonic generates and against what `tollfree-build` generates, over shared
//! memory and over HTTP/2: it must not be able to tell which.

mod with_tonic {
    use tollfree_stubs as stubs;
    include!("user.rs");
}

mod with_tollfree {
    use tollfree_direct_stubs as stubs;
    include!("user.rs");
}

/// The program's output over shared memory and over a Unix socket.
macro_rules! outputs {
    ($program:ident) => {{
        let directory = tempfile::tempdir().unwrap();
        let shm = format!("shm://{}", directory.path().join("s.sock").display());
        let unix = format!("unix:{}", directory.path().join("u.sock").display());
        let server = tokio::spawn($program::serve([shm.clone(), unix.clone()]));
        let channel = loop {
            match tollfree::Channel::connect(&*shm).await {
                Ok(channel) => break channel,
                Err(_) => tokio::task::yield_now().await,
            }
        };
        let over_shm = $program::run(channel).await;
        let endpoint = tonic::transport::Endpoint::try_from(unix).unwrap();
        let over_http = $program::run(endpoint.connect().await.unwrap()).await;
        server.abort();
        (over_shm, over_http)
    }};
}

#[tokio::test]
async fn the_program_says_the_same_with_either_generator_over_either_transport() {
    let (tonic_shm, tonic_http) = outputs!(with_tonic);
    let (tollfree_shm, tollfree_http) = outputs!(with_tollfree);
    assert!(tonic_http.len() > 30, "{tonic_http:#?}");
    assert_eq!(tonic_shm, tonic_http, "tonic's stubs");
    assert_eq!(tollfree_shm, tonic_http, "Tollfree's stubs over shared memory");
    assert_eq!(tollfree_http, tonic_http, "Tollfree's stubs over HTTP/2");
}
