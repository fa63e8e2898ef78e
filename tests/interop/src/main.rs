//! `tollfree-interop`: serves gRPC's test services, and runs every pairing of clients and servers.
#![forbid(unsafe_code)]

mod envoy;
mod foreign;
mod h2spec;
mod objects;
mod outside;
mod pairings;
mod table;
mod tools;
mod unread;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use tokio::io::AsyncReadExt as _;
use tollfree::pool::{Address, Capacity, Config, Pool};
use tollfree_interop::Via;
use tonic::transport::{Identity, ServerTlsConfig};

type Error = Box<dyn std::error::Error + Send + Sync>;

/// gRPC's interoperability tests over Tollfree.
#[derive(Debug, Parser)]
#[command(name = "tollfree-interop")]
enum Command {
    /// Serve the test services until the standard input ends
    Serve {
        /// shm:///path, shm-abstract:name, unix:/path, http://host:port, https://host:port
        #[arg(required = true)]
        addresses: Vec<String>,
        /// The certificate for https, a PEM file
        #[arg(long, requires = "key")]
        certificate: Option<PathBuf>,
        /// Its key, a PEM file
        #[arg(long, requires = "certificate")]
        key: Option<PathBuf>,
        /// Coordinate a memory pool at this address, by which large payloads go
        #[arg(long)]
        pool: Option<Address>,
        /// Let only processes join that were invited, and print so many invitations
        #[arg(long, requires = "pool")]
        invite: Option<usize>,
    },
    /// Serve the test services to a gateway until the standard input ends
    Attach {
        /// Where the gateway's backends attach: shm:///path
        socket: String,
    },
    /// Be a gateway until the standard input ends
    Gateway {
        /// Its config
        config: PathBuf,
    },
    /// Serve the test service with plain tonic until the standard input ends
    Tonic {
        /// 127.0.0.1:port
        address: std::net::SocketAddr,
    },
    /// Run every case of the client's against a server, and fail unless all pass
    Call {
        /// shm:///path, shm-abstract:name, unix:/path, http://host:port
        address: String,
        /// A case that need not pass (repeatable)
        #[arg(long)]
        except: Vec<String>,
        /// Join the memory pool that is coordinated at this address; large payloads go by it
        #[arg(long)]
        pool: Option<Address>,
        /// The address is a gateway's; call this target by way of it
        #[arg(long)]
        via: Option<String>,
        /// Call only by a direct connection
        #[arg(long, requires = "via")]
        direct: bool,
    },
    /// Serve a service whose messages are objects until the standard input ends
    ServeObjects {
        /// shm:///path, or where a gateway's backends attach
        address: String,
        /// The address is a gateway's: attach to it
        #[arg(long)]
        attach: bool,
        /// Coordinate a memory pool at this address, by which large objects go
        #[arg(long)]
        pool: Option<Address>,
    },
    /// Call a service whose messages are objects, and print how many came
    CallObjects {
        /// shm:///path
        address: String,
        /// The address is a gateway's; call this target by way of it
        #[arg(long)]
        via: Option<String>,
        /// Join the memory pool that is coordinated at this address; large objects go by it
        #[arg(long)]
        pool: Option<Address>,
    },
    /// Begin a call and read one answer; make another call after a line of the standard input, and read the rest after a second one
    CallUnread {
        /// shm:///path
        address: String,
    },
    /// Run every pairing and tool, and compare the results with what the document says
    Suite {
        /// Where grpc-go's `client` and `server`, `grpcurl` and `ghz` are
        #[arg(long)]
        tools: PathBuf,
        /// The go.mod that pins them
        #[arg(long)]
        versions: PathBuf,
        /// The document that shows the results
        #[arg(long)]
        document: PathBuf,
        /// Put the results into the document instead of comparing
        #[arg(long)]
        write: bool,
    },
    /// Run h2spec against plain tonic, our server and a gateway, and the cases through Envoy
    Outside(outside::Options),
}

#[tokio::main]
async fn main() -> ExitCode {
    let outcome = match Command::parse() {
        Command::Serve { addresses, certificate, key, pool, invite } => {
            serve(addresses, certificate.zip(key), pool, invite).await
        }
        Command::Attach { socket } => attach(socket).await,
        Command::Gateway { config } => gateway(config).await,
        Command::Tonic { address } => plain_tonic(address).await,
        Command::Call { address, except, pool, via, direct } => {
            call(address, except, pool, via.map(|target| Via { target, is_direct: direct })).await
        }
        Command::ServeObjects { address, attach, pool } => serve_objects(&address, attach, pool).await,
        Command::CallObjects { address, via, pool } => call_objects(&address, via, pool).await,
        Command::CallUnread { address } => unread::run(&address).await,
        Command::Outside(options) => outside::run(options).await,
        Command::Suite { tools, versions, document, write } => suite(tools, versions, document, write).await,
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("tollfree-interop: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn serve(
    addresses: Vec<String>,
    identity: Option<(PathBuf, PathBuf)>,
    pool: Option<Address>,
    invite: Option<usize>,
) -> Result<(), Error> {
    let mut server = tollfree_interop::server();
    if let Some(address) = pool {
        server = server.pool(match invite {
            None => coordinated(&address)?,
            Some(count) => invited(&address, count)?,
        });
    }
    if let Some((certificate, key)) = identity {
        let read = |path: PathBuf| {
            std::fs::read(&path).map_err(|error| format!("{} can't be read: {error}", path.display()))
        };
        let identity = Identity::from_pem(read(certificate)?, read(key)?);
        server = server.tls_config(ServerTlsConfig::new().identity(identity));
    }
    server.serve_many_with_shutdown(addresses.iter().map(String::as_str), starter_is_gone()).await?;
    Ok(())
}

async fn serve_objects(address: &str, is_gateway: bool, pool: Option<Address>) -> Result<(), Error> {
    let pool = pool.as_ref().map(coordinated).transpose()?;
    objects::serve(address, is_gateway, pool, starter_is_gone()).await
}

async fn call_objects(address: &str, via: Option<String>, pool: Option<Address>) -> Result<(), Error> {
    objects::call(address, via, pool.map(joined).transpose()?).await
}

fn coordinated(address: &Address) -> Result<Pool, Error> {
    Ok(Pool::create(address, Capacity::default(), Config::default())?)
}

/// A pool that only processes join which were told of one of so many invitations, a line each.
fn invited(address: &Address, count: usize) -> Result<Pool, Error> {
    let (pool, inviter) = Pool::create_by_invitation(address, Capacity::default(), Config::default())?;
    for _ in 0..count {
        println!("{}", inviter.invite()?.to_text());
    }
    Ok(pool)
}

fn joined(address: Address) -> Result<Pool, Error> {
    Ok(Pool::join(&address, Config::default())?)
}

/// The process that started this may be killed: the end of its pipe ends this too.
async fn starter_is_gone() {
    let mut ignored = [0; 64];
    while tokio::io::stdin().read(&mut ignored).await.is_ok_and(|len| len > 0) {}
}

async fn attach(socket: String) -> Result<(), Error> {
    tollfree_interop::server().attach(socket).until(starter_is_gone()).await?;
    Ok(())
}

async fn gateway(config: PathBuf) -> Result<(), Error> {
    let config = tollfree_gateway::Config::read(&[tollfree_gateway::Source::File(config)])?;
    tollfree_gateway::Gateway::bind(config).await?.run(starter_is_gone()).await;
    Ok(())
}

async fn call(
    address: String,
    except: Vec<String>,
    pool: Option<Address>,
    via: Option<Via>,
) -> Result<(), Error> {
    let pool = pool.map(joined).transpose()?;
    let failures = pairings::call(address, &except, pool, via).await;
    if failures.is_empty() {
        return Ok(());
    }
    Err(format!("not as it should be:\n  {}", failures.join("\n  ")).into())
}

async fn plain_tonic(address: std::net::SocketAddr) -> Result<(), Error> {
    let server = tollfree_interop::plain_tonic(h2spec::STREAM_COUNT);
    server.serve_with_shutdown(address, starter_is_gone()).await?;
    Ok(())
}

async fn suite(tools: PathBuf, versions: PathBuf, document: PathBuf, write: bool) -> Result<(), Error> {
    let lab = foreign::Lab::start(&tools)?;
    let pairings = pairings::run(&lab, pairings::all(&lab)).await;
    let checks = tools::run(&lab).await;
    lab.stop().await?;
    let versions = table::Versions::read(&versions, &table::MODULES)?;
    let results = table::render(&pairings, &checks, &versions);
    let failures = table::failures(&pairings, &checks);
    if !failures.is_empty() {
        return Err(format!("not as it should be:\n  {}", failures.join("\n  ")).into());
    }
    match write {
        true => table::write(&document, &results),
        false => table::compare(&document, &results, "make interop-table"),
    }
}
