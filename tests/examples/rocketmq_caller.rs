//! A service that uses the RocketMQ backend, with the compiler's default limits.
//!
//! The client's types are nested too deeply for them, so none may show through: this file is proof by compiling.

use std::sync::Arc;

use delayline::backend::{Backend, RocketMqBackend};
use delayline::rocketmq::RocketMqOptions;

#[tokio::test]
async fn needs_no_recursion_limit_of_its_own() {
    // Port 9 takes no connections.
    let connecting = tokio::spawn(async {
        let backend = RocketMqBackend::connect(RocketMqOptions::new("127.0.0.1:9").topic("t")).await?;
        let backend = Arc::new(backend);
        let receiving = tokio::spawn({
            let backend = backend.clone();
            async move { backend.receive(1).await }
        });
        let _ = receiving.await;
        let backend: Arc<dyn Backend> = backend;
        backend.close().await
    });
    assert!(connecting.await.unwrap().is_err());
}
