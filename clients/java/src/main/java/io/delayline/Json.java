package io.delayline;

import java.util.regex.Matcher;
import java.util.regex.Pattern;

/** Reads and writes the little JSON that commands and answers are made of, so that the library needs none. */
final class Json {
    private static final Pattern ESCAPE = Pattern.compile("\\\\(u(\\p{XDigit}{4})|.)");

    private Json() {
    }

    /**
     * Returns a text of a task or an answer by its name, or null.
     *
     * <p>Within a text each quote is behind a backslash, so none can look like a name; and what callers have put in, which
     * may have such names as well, comes behind all that is asked for here.
     */
    static String text(String json, String name) {
        String own = json.split(",\"(headers|payload)\":", 2)[0];
        Matcher text = Pattern.compile("\"" + name + "\":\\s*\"((?:[^\"\\\\]|\\\\.)*+)\"").matcher(own);
        if (!text.find()) {
            return null;
        }
        StringBuffer plain = new StringBuffer();
        Matcher escape = ESCAPE.matcher(text.group(1));
        while (escape.find()) {
            int known = "bfnrt".indexOf(escape.group(1));
            String sign = escape.group(2) != null ? String.valueOf((char) Integer.parseInt(escape.group(2), 16))
                    : known < 0 ? escape.group(1) : "\b\f\n\r\t".substring(known, known + 1);
            escape.appendReplacement(plain, Matcher.quoteReplacement(sign));
        }
        return escape.appendTail(plain).toString();
    }

    static String quote(String text) {
        StringBuilder json = new StringBuilder("\"");
        for (char sign : text.toCharArray()) {
            json.append(sign < ' ' || sign == '"' || sign == '\\' ? String.format("\\u%04x", (int) sign) : sign);
        }
        return json.append('"').toString();
    }
}
