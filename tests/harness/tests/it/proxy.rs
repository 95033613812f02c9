//! A cable that is cut, silent and healed.

use std::time::Duration;

use berth_harness::proxy::{Direction, Point, Proxy, Side, Wire};
use berth_harness::wait;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

/// A proxy in front of a server that echoes every byte.
async fn echo() -> Proxy {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let target = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let (mut from, mut to) = stream.split();
                let _ = tokio::io::copy(&mut from, &mut to).await;
            });
        }
    });
    Proxy::start(target).await
}

async fn echoes(stream: &mut TcpStream, byte: u8) {
    stream.write_all(&[byte]).await.unwrap();
    assert_eq!(stream.read_u8().await.unwrap(), byte);
}

#[tokio::test]
async fn a_silent_cable_holds_bytes_back_and_gives_them_later() {
    let proxy = echo().await;
    let mut stream = TcpStream::connect(proxy.address()).await.unwrap();
    echoes(&mut stream, 1).await;

    proxy.half_open();
    stream.write_all(&[2]).await.unwrap();
    let silence = timeout(Duration::from_millis(200), stream.read_u8()).await;
    assert!(silence.is_err(), "{silence:?}");

    proxy.heal();
    assert_eq!(stream.read_u8().await.unwrap(), 2);
    echoes(&mut stream, 3).await;
}

#[tokio::test]
async fn a_one_way_cable_carries_one_direction_and_gives_the_other_later() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let proxy = Proxy::start(listener.local_addr().unwrap()).await;
    let mut client = TcpStream::connect(proxy.address()).await.unwrap();
    let (mut target, _) = listener.accept().await.unwrap();

    proxy.one_way(Direction::ToTarget);
    target.write_all(&[1]).await.unwrap();
    client.write_all(&[2]).await.unwrap();
    assert_eq!(target.read_u8().await.unwrap(), 2);
    let silence = timeout(Duration::from_millis(200), client.read_u8()).await;
    assert!(silence.is_err(), "{silence:?}");

    proxy.one_way(Direction::FromTarget);
    assert_eq!(client.read_u8().await.unwrap(), 1);
    client.write_all(&[3]).await.unwrap();
    let silence = timeout(Duration::from_millis(200), target.read_u8()).await;
    assert!(silence.is_err(), "{silence:?}");

    proxy.heal();
    assert_eq!(target.read_u8().await.unwrap(), 3);
}

#[tokio::test]
async fn a_cut_cable_breaks_connections_until_healed() {
    let proxy = echo().await;
    let mut stream = TcpStream::connect(proxy.address()).await.unwrap();
    echoes(&mut stream, 1).await;

    proxy.cut();
    assert!(stream.read_u8().await.is_err());
    if let Ok(mut new) = TcpStream::connect(proxy.address()).await {
        assert!(new.read_u8().await.is_err());
    }

    proxy.heal();
    let mut stream = TcpStream::connect(proxy.address()).await.unwrap();
    echoes(&mut stream, 2).await;
}

#[tokio::test]
async fn a_dropped_proxy_leaves_no_connection() {
    let proxy = echo().await;
    let mut stream = TcpStream::connect(proxy.address()).await.unwrap();
    echoes(&mut stream, 1).await;
    let address = proxy.address();
    drop(proxy);
    assert!(stream.read_u8().await.is_err());
    wait::until("nobody listens", Duration::from_secs(5), async || {
        match TcpStream::connect(address).await {
            Ok(_) => Err("connected"),
            Err(_) => Ok(()),
        }
    })
    .await;
}

/// A proxy in front of a listener that answers each message as a nats-server would. Also the
/// subjects of the messages it handled.
async fn answering(wire: &Wire) -> (Proxy, std::sync::Arc<std::sync::Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let target = listener.local_addr().unwrap();
    let handled = std::sync::Arc::<std::sync::Mutex<Vec<String>>>::default();
    let subjects = handled.clone();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let subjects = subjects.clone();
            tokio::spawn(async move {
                let (from, mut to) = stream.into_split();
                let mut lines = BufReader::new(from).lines();
                while let Ok(Some(line)) = lines.next_line().await {
                    let words: Vec<&str> = line.split(' ').collect();
                    if let ["PUB", subject, reply, "0"] = words.as_slice() {
                        subjects.lock().unwrap().push((*subject).to_owned());
                        let answer = format!("MSG {reply} 1 0\r\n\r\n");
                        to.write_all(answer.as_bytes()).await.unwrap();
                    }
                }
            });
        }
    });
    (Proxy::across(target, "client", wire).await, handled)
}

async fn publish(stream: &mut TcpStream, subject: &str, reply: &str) {
    stream.write_all(format!("PUB {subject} {reply} 0\r\n\r\n").as_bytes()).await.unwrap();
}

async fn is_answered(stream: &mut TcpStream, reply: &str) -> bool {
    let expected = format!("MSG {reply} 1 0\r\n\r\n");
    let mut bytes = vec![0; expected.len()];
    let read = timeout(Duration::from_millis(300), stream.read_exact(&mut bytes)).await;
    read.is_ok_and(|read| read.is_ok()) && bytes == expected.as_bytes()
}

#[tokio::test]
async fn a_tripwire_stops_a_cable_on_either_side_of_a_message() {
    for (side, stored) in [(Side::Before, vec!["k.1", "x"]), (Side::After, vec!["k.1", "x", "k.2"])]
    {
        let wire = Wire::default();
        let (proxy, handled) = answering(&wire).await;
        let mut stream = TcpStream::connect(proxy.address()).await.unwrap();
        wire.arm(Point { subjects: vec!["k.*".to_owned()], at: 1, side });
        for (subject, reply) in [("k.1", "r1"), ("x", "r2")] {
            publish(&mut stream, subject, reply).await;
            assert!(is_answered(&mut stream, reply).await);
        }
        // This message has no reply subject: it does not count.
        stream.write_all(b"PUB k.0 0\r\n\r\n").await.unwrap();
        publish(&mut stream, "k.2", "r3").await;
        let tripped = wire.tripped().await;
        assert_eq!((tripped.cable.as_str(), tripped.subject.as_str()), ("client", "k.2"));
        assert!(!is_answered(&mut stream, "r3").await, "nothing of the answer passes");
        assert_eq!(*handled.lock().unwrap(), stored);
        assert_eq!(wire.disarm().len(), 2);

        // The held bytes pass once the cable is healed.
        proxy.heal();
        assert!(is_answered(&mut stream, "r3").await);
        assert_eq!(*handled.lock().unwrap(), ["k.1", "x", "k.2"]);
    }
}

#[tokio::test]
async fn a_lost_connection_stands_and_carries_nothing_and_a_snapped_one_breaks() {
    let proxy = echo().await;
    let mut stream = TcpStream::connect(proxy.address()).await.unwrap();
    echoes(&mut stream, 1).await;
    proxy.lose();
    stream.write_all(&[2]).await.unwrap();
    let mut new = TcpStream::connect(proxy.address()).await.unwrap();
    echoes(&mut new, 3).await;
    let silence = timeout(Duration::from_millis(200), stream.read_u8()).await;
    assert!(silence.is_err(), "{silence:?}");

    proxy.tell_lost();
    assert!(stream.read_u8().await.is_err());
    echoes(&mut new, 3).await;
    proxy.snap();
    assert!(new.read_u8().await.is_err());
    let mut stream = TcpStream::connect(proxy.address()).await.unwrap();
    echoes(&mut stream, 4).await;
}
