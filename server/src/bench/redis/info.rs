//! What a server says of itself.

use redis::aio::MultiplexedConnection;

use super::super::Error;

/// One value of `INFO`.
pub(super) async fn told(
    connection: &MultiplexedConnection,
    section: &str,
    field: &str,
) -> Result<String, Error> {
    let text: String = redis::cmd("INFO")
        .arg(section)
        .query_async(&mut connection.clone())
        .await?;
    let mut lines = text.lines().filter_map(|line| line.split_once(':'));
    let (_, value) = lines
        .find(|(name, _)| *name == field)
        .ok_or("INFO lacks a field")?;
    Ok(value.trim().to_owned())
}

/// One number of `INFO`.
pub(super) async fn info(
    connection: &MultiplexedConnection,
    section: &str,
    field: &str,
) -> Result<f64, Error> {
    Ok(told(connection, section, field).await?.parse()?)
}
