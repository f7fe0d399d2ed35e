//! A real browser, without a window.

use std::io::{BufRead as _, BufReader};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;
use thirtyfour::{
    By, CapabilitiesHelper as _, ChromiumLikeCapabilities as _, DesiredCapabilities, Key, TypingData,
    WebDriver,
};

use crate::server::Server;

/// Chromium, which looks at one server, and ends with the test.
pub(crate) struct Chromium {
    driver: Child,
    /// None at its end.
    page: Option<WebDriver>,
    url: String,
    /// Where it keeps what it knows.
    _folder: TempDir,
}

/// Starts a driver, and gives its port. It takes one that is free in IPv6, and ends where another process has that in IPv4: then
/// another driver is started.
fn started(folder: &Path) -> (Child, u16) {
    let mut output = Vec::new();
    for _ in 0..10 {
        let mut driver = Command::new("chromedriver")
            .arg("--port=0")
            .env("TMPDIR", folder)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .expect("chromedriver is needed, of Debian's package chromium-driver");
        let lines = BufReader::new(driver.stdout.take().unwrap()).lines();
        let mut lines = lines.map(Result::unwrap);
        let port = lines.find_map(|line| {
            let port = line.split_once("started successfully on port ");
            let port = port.map(|(_, port)| port.trim_end_matches('.').parse().unwrap());
            output.push(line);
            port
        });
        if let Some(port) = port {
            // It may say more, and must not wait for a reader.
            std::thread::spawn(move || lines.for_each(drop));
            return (driver, port);
        }
        driver.wait().unwrap();
    }
    panic!("chromedriver does not start: {output:#?}");
}

impl Chromium {
    pub(crate) async fn new(server: &Server) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (driver, port) = started(folder.path());
        let mut wanted = DesiredCapabilities::chrome();
        for argument in [
            "--headless=new",
            "--window-size=1280,900",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
        ] {
            wanted.add_arg(argument).unwrap();
        }
        let logs = json!({"browser": "ALL", "performance": "ALL"});
        wanted.set("goog:loggingPrefs", logs).unwrap();
        let page = WebDriver::new(&format!("http://127.0.0.1:{port}"), wanted)
            .await
            .expect("chromium is needed, of Debian's package of that name");
        page.set_script_timeout(Duration::from_secs(120)).await.unwrap();
        Self {
            driver,
            page: Some(page),
            url: server.url.clone(),
            _folder: folder,
        }
    }

    fn page(&self) -> &WebDriver {
        self.page.as_ref().unwrap()
    }

    /// Goes to the page of an address, of this server or another.
    pub(super) async fn at(&self, url: &str) {
        self.page().goto(url).await.unwrap();
    }

    pub(super) async fn go(&self, path: &str) {
        self.page().goto(format!("{}{path}", self.url)).await.unwrap();
    }

    /// What a script gives back.
    pub(super) async fn run(&self, script: &str) -> Value {
        self.page().execute(script, []).await.unwrap().json().clone()
    }

    /// The same of one that calls its argument when it has ended.
    pub(super) async fn run_async(&self, script: &str) -> Value {
        self.page()
            .execute_async(script, [])
            .await
            .unwrap()
            .json()
            .clone()
    }

    /// What a person reads.
    pub(super) async fn text(&self) -> String {
        let text = self.run("return document.body.innerText").await;
        text.as_str().unwrap().to_owned()
    }

    /// What a person sees, as a PNG.
    pub(super) async fn picture(&self) -> Vec<u8> {
        self.page().screenshot_as_png().await.unwrap()
    }

    /// Waits until a person reads this.
    pub(super) async fn says(&self, said: &str) {
        let mut text = String::new();
        for _ in 0..1_200 {
            text = self.text().await;
            if text.contains(said) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!("it does not say {said:?}: {text}");
    }

    pub(super) async fn click(&self, css: &str) {
        let found = self.page().find(By::Css(css)).await;
        found
            .unwrap_or_else(|error| panic!("{css}: {error}"))
            .click()
            .await
            .unwrap();
    }

    /// Types into what has the focus.
    pub(super) async fn type_keys(&self, keys: impl Into<TypingData>) {
        let active = self.page().active_element().await.unwrap();
        active.send_keys(keys).await.unwrap();
    }

    /// Waits until the page has put the focus on the field of this id, which it does some time after it is shown.
    pub(super) async fn until_focused(&self, id: &str) {
        while self.run("return document.activeElement.id").await != json!(id) {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    pub(super) async fn sign_in(&self, token: &str) {
        self.until_focused("token").await;
        self.type_keys(token + Key::Enter).await;
    }

    /// Goes on by the tabulator until the focus is on what a condition says of `it`; it must be seen where the focus is.
    pub(super) async fn tab_to(&self, condition: &str) {
        for _ in 0..60 {
            self.type_keys(Key::Tab + "").await;
            let script = format!(
                "const it = document.activeElement; const style = getComputedStyle(it); \
                 return [Boolean({condition}), style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) >= 2]"
            );
            let found = self.run(&script).await;
            if found[0] == true {
                assert_eq!(found[1], true, "the focus is not seen");
                return;
            }
        }
        panic!("no key leads to {condition}: {}", self.text().await);
    }

    /// As on a telephone of this width, or as wide as usual.
    pub(super) async fn be_wide(&self, width: u32) {
        let size = json!({"width": width, "height": 844, "deviceScaleFactor": 1, "mobile": width < 500});
        self.tell("Emulation.setDeviceMetricsOverride", size).await;
    }

    /// As for a user who wants it dark, or light.
    pub(super) async fn prefer(&self, scheme: &str) {
        let features = json!({"features": [{"name": "prefers-color-scheme", "value": scheme}]});
        self.tell("Emulation.setEmulatedMedia", features).await;
    }

    /// As in a time zone.
    pub(super) async fn be_at(&self, zone: &str) {
        self.tell("Emulation.setTimezoneOverride", json!({"timezoneId": zone}))
            .await;
    }

    async fn tell(&self, what: &str, how: Value) {
        self.page().cdp().send_raw(what, how).await.unwrap();
    }

    /// Ends if nothing has failed in any page, and no other server was asked for anything.
    pub(crate) async fn end_well(mut self) {
        let log = self.page().browser_log().await.unwrap();
        let wrong: Vec<_> = log.iter().filter(|entry| entry.level == "SEVERE").collect();
        assert!(wrong.is_empty(), "{wrong:?}");
        let mut asked = 0;
        for entry in self.page().get_log("performance").await.unwrap() {
            let event: Value = serde_json::from_str(&entry.message).unwrap();
            let event = &event["message"];
            if event["method"] != "Network.requestWillBeSent" {
                continue;
            }
            let url = event["params"]["request"]["url"].as_str().unwrap();
            assert!(url.starts_with(&self.url) || url.starts_with("data:"), "{url}");
            asked += 1;
        }
        assert!(asked > 0, "it is not told what was asked for");
        self.page.take().unwrap().quit().await.unwrap();
    }
}

impl Drop for Chromium {
    fn drop(&mut self) {
        // Else it would wait for a driver that is gone.
        let _ = self.page.take().map(WebDriver::leak);
        // The browser is of its group.
        let group = format!("-{}", self.driver.id());
        let _ = Command::new("kill").args(["-KILL", "--", &group]).status();
        let _ = self.driver.wait();
    }
}
