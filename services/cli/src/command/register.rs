//! `berth volume register`

use std::path::PathBuf;
use std::time::Duration;

use berth_contract::code::Code;
use berth_contract::decode::Fault;
use berth_contract::message::many::{RegisterAnswer, RegisterVolumes};
use berth_contract::message::volume::{RegisterVolume, Registered};
use berth_contract::problem::Problem;
use berth_contract::verb;
use berth_domain::{Namespace, VolumeKey};

use super::many;
use super::spec::{Spec, seal_secrets};
use crate::args;
use crate::failure::Failure;
use crate::session::Session;

/// Longer than other requests: the service calls the plugin before it registers.
pub const REGISTER_PATIENCE: Duration = Duration::from_secs(30);

/// Registers volumes. While a document has a fault, no connection is made.
pub async fn register(args: &args::Register, global: &args::Global) -> Result<(), Failure> {
    let [file] = args.files.as_slice() else { return register_many(&args.files, global).await };
    let spec = Spec::<RegisterVolume>::load(file)?;
    let namespace = spec.namespace(global.namespace.as_ref())?;
    let session = Session::open(global).await?;
    let patience = session.patience(REGISTER_PATIENCE);
    let request = sealed(&session, &namespace, &spec).await?;
    let reply = session.pursue::<verb::VolumeRegister>(&namespace, &request, patience);
    let registered = reply.await.map_err(|failure| spec.explain(failure))?;
    session.output.reply(&registered, registered_text);
    Ok(())
}

/// Registers several volumes: all or none for what is wrong in their documents.
async fn register_many(files: &[PathBuf], global: &args::Global) -> Result<(), Failure> {
    let (specs, namespace) = load_all(files, global.namespace.as_ref())?;
    let session = Session::open(global).await?;
    let patience = session.patience(REGISTER_PATIENCE);
    let mut requests = Vec::new();
    for spec in &specs {
        requests.push(sealed(&session, &namespace, spec).await?);
    }
    let ask = async |volumes| {
        let request = RegisterVolumes { volumes };
        let reply = session.pursue::<verb::VolumeRegisterMany>(&namespace, &request, patience);
        let answers = reply.await.map_err(|failure| explain_each(&specs, failure))?.answers;
        Ok(answers.into_iter().map(result).collect())
    };
    let answers = many::ask_each(&requests, patience.until, ask).await?;
    many::report(answers, &session, registered_text)
}

/// Reads all documents, with the faults of all. One request is for one namespace.
fn load_all(
    files: &[PathBuf],
    from_command_line: Option<&Namespace>,
) -> Result<(Vec<Spec<RegisterVolume>>, Namespace), Failure> {
    let (mut specs, mut failures) = (Vec::new(), Vec::new());
    let mut namespace: Option<Namespace> = None;
    for file in files {
        let loaded = Spec::<RegisterVolume>::load(file).and_then(|spec| {
            let own = spec.namespace(from_command_line)?;
            let first = namespace.get_or_insert_with(|| own.clone());
            if *first == own {
                return Ok(spec);
            }
            let problem =
                format!("is {own}, but a document before it is for {first}: register them apart");
            Err(spec.faulty(vec![Fault { path: "namespace".to_owned(), problem, line: None }]))
        });
        match loaded {
            Ok(spec) => specs.push(spec),
            Err(failure) => failures.push(failure),
        }
    }
    if failures.is_empty() {
        Ok((specs, namespace.unwrap_or_default()))
    } else {
        Err(Failure::unsent(failures))
    }
}

/// The request of a document, with its secrets sealed.
async fn sealed(
    session: &Session,
    namespace: &Namespace,
    spec: &Spec<RegisterVolume>,
) -> Result<RegisterVolume, Failure> {
    let mut request = spec.request.clone();
    if let Some(secrets) = request.secrets.take() {
        let volume = VolumeKey::new(namespace.clone(), request.id.clone());
        request.secrets = Some(seal_secrets(session, &volume, secrets).await?);
    }
    Ok(request)
}

/// The failure of a request with several documents: each fault at its document.
fn explain_each(specs: &[Spec<RegisterVolume>], failure: Failure) -> Failure {
    let Failure::Problem(problem) = &failure else { return failure };
    if problem.code != Code::BadInput {
        return failure;
    }
    let faulty = specs.iter().enumerate().filter_map(|(at, spec)| {
        let place = format!("volumes[{at}].");
        let own = problem.faults.iter().filter_map(|fault| {
            let path = fault.path.strip_prefix(&place)?.to_owned();
            Some(Fault { path, ..fault.clone() })
        });
        let own: Vec<Fault> = own.collect();
        (!own.is_empty()).then(|| spec.faulty(own))
    });
    let faulty: Vec<Failure> = faulty.collect();
    if faulty.is_empty() { failure } else { Failure::unsent(faulty) }
}

fn result(answer: RegisterAnswer) -> Result<Registered, Problem> {
    let RegisterAnswer { id, registered, error } = answer;
    registered.ok_or_else(|| error.unwrap_or_else(|| many::no_answer(&id)))
}

/// `volume default/data registered`
pub fn registered_text(registered: &Registered) -> String {
    let Registered { id, namespace, changed, .. } = registered;
    let outcome = if *changed { "registered" } else { "was registered so already" };
    format!("volume {namespace}/{id} {outcome}")
}
