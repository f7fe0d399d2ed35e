package io.delayline;

/** Reads and writes the little JSON that commands and answers are made of, so that the library needs none. */
final class Json {
    private Json() {
    }

    /**
     * Returns a text of a task or an answer by its name, or null.
     *
     * <p>Within a text each quote is behind a backslash, so none can look like a name; and callers' data, which
     * may have such names as well, comes behind all that is asked for here.
     */
    static String text(String json, String name) {
        String own = json.split(",\"(headers|payload)\":", 2)[0];
        String before = "\"" + name + "\":\"";
        int at = own.indexOf(before);
        if (at < 0) {
            return null;
        }
        StringBuilder text = new StringBuilder();
        for (at += before.length(); own.charAt(at) != '"'; at++) {
            char sign = own.charAt(at);
            if (sign == '\\') {
                sign = own.charAt(++at);
                int known = "bfnrt".indexOf(sign);
                if (sign == 'u') {
                    sign = (char) Integer.parseInt(own.substring(at + 1, at + 5), 16);
                    at += 4;
                } else if (known >= 0) {
                    sign = "\b\f\n\r\t".charAt(known);
                }
            }
            text.append(sign);
        }
        return text.toString();
    }

    static String quote(String text) {
        StringBuilder json = new StringBuilder("\"");
        for (char sign : text.toCharArray()) {
            json.append(sign < ' ' || sign == '"' || sign == '\\' ? String.format("\\u%04x", (int) sign) : sign);
        }
        return json.append('"').toString();
    }
}
