//! Prints a volume: `cargo run -p berth-client --example volume nats://127.0.0.1:4222 ID`

use std::error::Error;
use std::time::Duration;

use berth_bus::{Bus, Call, Config};
use berth_client::{Client, Retry};
use berth_contract::message::volume::VolumeQuery;
use berth_contract::trace::TraceContext;
use berth_contract::verb;
use berth_domain::{Namespace, VolumeId};

#[tokio::main]
#[expect(clippy::print_stdout, reason = "it is what the example is for")]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut words = std::env::args().skip(1);
    let (server, id) = words.next().zip(words.next()).ok_or("name a server and a volume")?;
    let client = Client::new(Bus::connect(Config::new([server], "example").insecure()).await?);
    let call = Call::within(TraceContext::begin(&mut rand::rng()), Duration::from_secs(5));
    let request = VolumeQuery::current(VolumeId::new(id)?);
    let volume = client
        .persist::<verb::VolumeStatus>(
            &Namespace::default(),
            &request,
            &call,
            Retry::USUAL,
            |failed| failed.problem.retryable,
        )
        .await?;
    println!("{} of plugin {} has {} claims", volume.id, volume.plugin, volume.claims.len());
    Ok(())
}
