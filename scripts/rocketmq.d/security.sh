# Accounts and TLS. Read by scripts/rocketmq, which has say, die, setting and JAVA_FLAGS.

# --- Accounts ---------------------------------------------------------------------------------------------------

random_secret() { od -An -N16 -tx1 /dev/urandom | tr -d ' \n'; }

# make_accounts DIR: one that may do everything, and one that may only publish and subscribe.
make_accounts() {
    [[ ! -e $1/accounts ]] || return 0
    # Names that are long enough for 4.x: more than six characters.
    (umask 077 && printf '%s\n' "admin delayline-admin $(random_secret)" "worker delayline-worker $(random_secret)" \
        >"$1/accounts")
}

# account DIR NAME: sets ACCESS_KEY and SECRET_KEY.
account() {
    local name
    while read -r name ACCESS_KEY SECRET_KEY; do
        [[ $name != "$2" ]] || return 0
    done <"$1/accounts"
    die "$1/accounts has no account $2"
}

# acl_settings DIR BROKER VERSION: prints what the broker's settings need, and writes what they refer to.
acl_settings() {
    local dir=$1 home=$1/home/$2 admin secret
    account "$dir" admin
    admin=$ACCESS_KEY secret=$SECRET_KEY
    account "$dir" worker
    if [[ $3 == 4.* ]]; then
        # A 4.x broker lets everybody with an account read its settings: what it keeps for admins is to change things.
        cat >"$home/conf/plain_acl.yml" <<YML
globalWhiteRemoteAddresses: []
accounts:
- accessKey: $admin
  secretKey: $secret
  whiteRemoteAddress:
  admin: true
- accessKey: $ACCESS_KEY
  secretKey: $SECRET_KEY
  whiteRemoteAddress:
  admin: false
  defaultTopicPerm: PUB|SUB
  defaultGroupPerm: PUB|SUB
YML
        echo aclEnable=true
        return
    fi
    local auth=org.apache.rocketmq.auth
    cat <<CONF
authenticationEnabled=true
authenticationProvider=$auth.authentication.provider.DefaultAuthenticationProvider
authenticationMetadataProvider=$auth.authentication.provider.LocalAuthenticationMetadataProvider
initAuthenticationUser={"username":"$admin","password":"$secret"}
innerClientAuthenticationCredentials={"accessKey":"$admin","secretKey":"$secret"}
authorizationEnabled=true
authorizationProvider=$auth.authorization.provider.DefaultAuthorizationProvider
authorizationMetadataProvider=$auth.authorization.provider.LocalAuthorizationMetadataProvider
CONF
}

# create_worker DIR BROKER JARS: on 5.x, where accounts other than the first are made by asking the broker.
create_worker() {
    local dir=$1 broker=$2 jars=$3 home=$1/home/mqadmin to
    mkdir -p "$home/conf"
    account "$dir" admin
    (umask 077 && printf '%s\n' "accessKey: $ACCESS_KEY" "secretKey: $SECRET_KEY" >"$home/conf/tools.yml")
    account "$dir" worker
    to=(-n "127.0.0.1:${setting[port/namesrv]}" -b "127.0.0.1:${setting[port/$broker]}")
    mqadmin "$dir" "$jars" createUser "${to[@]}" -u "$ACCESS_KEY" -p "$SECRET_KEY" -t Normal
    mqadmin "$dir" "$jars" createAcl "${to[@]}" -s "User:$ACCESS_KEY" -r 'Topic:*,Group:*' -a Pub,Sub -d Allow
}

# mqadmin DIR JARS COMMAND...: as the account admin, three times if it must: it gives a busy broker some seconds only.
mqadmin() {
    local dir=$1 jars=$2 said=$1/home/mqadmin/said
    shift 2
    for _ in 1 2 3; do
        ROCKETMQ_HOME=$dir/home/mqadmin "$JAVA" "${JAVA_FLAGS[@]}" -Xmx64m -Duser.home="$dir/home/mqadmin" \
            -cp "$jars/*" org.apache.rocketmq.tools.command.MQAdminStartup "$@" </dev/null >"$said" 2>&1 &
        # Its last words are followed by some seconds of farewells to all servers.
        until grep -q success "$said" || ! kill -0 $! 2>/dev/null; do sleep 0.1; done
        kill -KILL $! 2>/dev/null || true
        wait $! 2>/dev/null || true
        # An attempt whose answer came too late has been made all the same.
        ! grep -qE 'success|is existed' "$said" || return 0
    done
    die "mqadmin $1 failed: $(grep -v '|-' "$said")"
}

# --- TLS --------------------------------------------------------------------------------------------------------

# make_certificates DIR: an authority (DIR/ca.pem), and by it a certificate for servers on the loopback.
make_certificates() {
    local dir=$1/tls
    [[ ! -e $1/ca.pem ]] || return 0
    command -v openssl >/dev/null || install_or_die openssl openssl
    mkdir -p "$dir"
    (
        umask 077
        cd "$dir"
        openssl req -x509 -newkey rsa:2048 -nodes -days 3650 -subj '/CN=delayline test authority' \
            -addext 'basicConstraints=critical,CA:TRUE' -addext 'keyUsage=critical,keyCertSign' \
            -keyout ca.key -out ca.pem
        # req writes its key as PKCS#8, the only form that RocketMQ reads.
        openssl req -newkey rsa:2048 -nodes -subj '/CN=localhost' -keyout server.key -out server.csr
        openssl x509 -req -in server.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 3650 -out server.pem \
            -extfile <(printf '%s\n' 'subjectAltName=IP:127.0.0.1,DNS:localhost' 'extendedKeyUsage=serverAuth')
    ) 2>"$1/tls.log" || die "openssl could not make the certificates: $(<"$1/tls.log")"
    cat >"$dir/settings" <<CONF
tls.test.mode.enable=false
tls.server.need.client.auth=none
tls.server.keyPath=$dir/server.key
tls.server.certPath=$dir/server.pem
tls.server.authClient=false
tls.client.trustCertPath=$dir/ca.pem
tls.client.authServer=false
CONF
    # Last: it says that all is there.
    cp "$dir/ca.pem" "$1/ca.pem"
}
