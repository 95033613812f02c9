//! The actor at the end of a request's subject, by which a service decides.

use berth_bus::{Bus, Call, Config, Listen, Request, RequestError, VerbRequest};
use berth_contract::actor::Actor;
use berth_contract::code::Code;
use berth_contract::problem::Problem;
use berth_contract::service::CLAIM;
use berth_contract::verb::{self, Verb as _};
use berth_domain::NodeId;
use berth_harness::nats::Server;
use serde_json::{Value, json};

use crate::request::{endpoint, service};
use crate::support::{PATIENCE, config, one, trace};

fn node(id: &str) -> NodeId {
    NodeId::new(id).unwrap()
}

/// Connects with this actor.
async fn connect(server: &Server, actor: Actor) -> Bus {
    Bus::connect(Config { actor, ..config(&server.url()) }).await.unwrap()
}

async fn ask(bus: &Bus, subject: &str) -> Result<Value, RequestError> {
    bus.request(subject, &(), &Call::within(trace(), PATIENCE)).await
}

#[tokio::test]
async fn a_request_names_its_sender() {
    let (server, bus) = one().await;
    let service = bus.service(service("who")).await.unwrap();
    let answer = |request: Request| async move {
        let who = request.actor.map(|actor| actor.to_string());
        Ok(json!({"who": who, "subject": request.subject}))
    };
    service.endpoint(endpoint("who", "who.is"), answer).await.unwrap();
    assert!(bus.flush(PATIENCE).await);
    for (actor, said) in [
        (Actor::user("anna@example"), "user anna@example"),
        (Actor::Node(node("host.example")), "node host.example"),
        (Actor::Docker(node("n1")), "docker n1"),
        (Actor::service(CLAIM), "service claim"),
    ] {
        let seen_actor = ask(&connect(&server, actor).await, "who.is").await.unwrap();
        assert_eq!(seen_actor, json!({"who": said, "subject": "who.is"}));
    }
    // As `nats micro req` sends it, to the subject that the endpoint lists; and without an actor.
    let client = async_nats::connect(&server.url()).await.unwrap();
    let reply = client.request("who.is.*.*", "".into()).await.unwrap();
    let reply: Value = serde_json::from_slice(&reply.payload).unwrap();
    assert_eq!(reply, json!({"who": null, "subject": "who.is"}));
    assert!(client.request("who.is", "".into()).await.is_err());
}

#[tokio::test]
async fn an_agents_request_about_another_node_is_refused() {
    let (server, bus) = one().await;
    let service = bus.service(service("nodes")).await.unwrap();
    let open = |request: VerbRequest<verb::SecretOpen>| async move {
        request.check_node(&request.to()?)?;
        Err(Problem::new(Code::SecretsUnavailable, "it came this far"))
    };
    service.on(Listen::All, 8, open).await.unwrap();
    let list = |request: VerbRequest<verb::AllocList>| async move {
        request.check_reads_own_node(request.message()?.node.as_ref())?;
        Err(Problem::new(Code::Internal, "it came this far"))
    };
    service.on(Listen::All, 8, list).await.unwrap();
    assert!(bus.flush(PATIENCE).await);

    let subject = verb::SecretOpen::subject(&node("n1"));
    let lists = [json!({"node": "n1"}), json!({"node": "n2"}), json!({})];
    let (far, no) = (Code::Internal, Code::NotAllowed);
    for (actor, opened, listed) in [
        (Actor::Node(node("n1")), Code::SecretsUnavailable, [far, no, no]),
        (Actor::Node(node("n2")), no, [no, far, no]),
        (Actor::Docker(node("n2")), no, [far, far, far]),
        (Actor::user("n2"), Code::SecretsUnavailable, [far, far, far]),
        (Actor::service(CLAIM), Code::SecretsUnavailable, [far, far, far]),
    ] {
        let bus = connect(&server, actor.clone()).await;
        let code = |answer: Result<Value, RequestError>| answer.unwrap_err().into_problem("x").code;
        assert_eq!(code(ask(&bus, &subject).await), opened, "{actor}");
        for (list, listed) in lists.iter().zip(listed) {
            let subject = verb::AllocList::subject(&berth_domain::Namespace::default());
            let answer = bus.request(&subject, list, &Call::within(trace(), PATIENCE)).await;
            assert_eq!(code(answer), listed, "{actor} {list}");
        }
    }
}
