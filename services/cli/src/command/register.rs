//! `berth volume register`

use std::time::Duration;

use berth_contract::message::volume::{RegisterVolume, Registered};
use berth_contract::verb;
use berth_domain::VolumeKey;

use super::spec::{Spec, seal_secrets};
use crate::args;
use crate::failure::Failure;
use crate::session::Session;

/// Longer than other requests: the service calls the plugin before it registers.
pub const REGISTER_PATIENCE: Duration = Duration::from_secs(30);

/// Registers a volume. While the document has a fault, no connection is made.
pub async fn register(args: &args::Register, global: &args::Global) -> Result<(), Failure> {
    let spec = Spec::<RegisterVolume>::load(&args.file)?;
    let namespace = spec.namespace(global.namespace.as_ref())?;
    let session = Session::open(global).await?;
    let patience = session.patience(REGISTER_PATIENCE);
    let mut request = spec.request.clone();
    if let Some(secrets) = request.secrets.take() {
        let volume = VolumeKey::new(namespace.clone(), request.id.clone());
        request.secrets = Some(seal_secrets(&session, &volume, secrets).await?);
    }
    let reply = session.pursue::<verb::VolumeRegister>(&namespace, &request, patience);
    let registered = reply.await.map_err(|failure| spec.explain(failure))?;
    session.output.reply(&registered, registered_text);
    Ok(())
}

/// `volume default/data registered`
pub fn registered_text(registered: &Registered) -> String {
    let Registered { id, namespace, changed, .. } = registered;
    let outcome = if *changed { "registered" } else { "was registered so already" };
    format!("volume {namespace}/{id} {outcome}")
}
