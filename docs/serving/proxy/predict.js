// Checks a request to TensorFlow Serving's REST interface, and passes on what it has read.
//
// The body that the server gets is written again from what was parsed here: escapes, keys that occur
// twice and other keys do not reach it. JSON.parse refuses more than 32 levels.

const MAX_ROWS = 1024;

// The inputs of the signatures, the type of their elements, and the dimensions of a row. `null` is
// that of nginx.conf.
const INPUTS = {
    text: ['string', 0],
    text_pair: ['string', 0],
    prompt_name: ['string', 0],
    question: ['string', 0],
    context: ['string', 0],
    words: ['string', 1],
    num_words: ['number', 0],
    choices: ['string', 1],
    num_choices: ['number', 0],
    token_ids: ['number', null],
    segment_ids: ['number', null],
};

// The only input of the signatures whose rows may be sent without its name; of others it is a text.
const ONLY_INPUT = {serve_ids: 'token_ids', serve_words: 'words'};

function check(r) {
    let body;
    try {
        body = JSON.stringify(checked(JSON.parse(r.requestText), r));
    } catch (error) {
        r.headersOut['Content-Type'] = 'application/json';
        r.return(400, JSON.stringify({error: `refused by the proxy: ${error.message}`}) + '\n');
        return;
    }
    r.subrequest(`/checked${r.uri}`, {method: 'POST', body: body}, answer => {
        r.headersOut['Content-Type'] = answer.headersOut['Content-Type'] || 'text/plain';
        r.return(answer.status, answer.responseBuffer);
    });
}

function checked(request, r) {
    const key = r.uri.endsWith(':predict') ? 'instances' : 'examples';
    if (!isObject(request)) {
        throw Error('expected an object');
    }
    Object.keys(request).forEach(name => {
        if (name !== key && name !== 'signature_name') {
            throw Error(`expected ${key} and signature_name alone`);
        }
    });
    const rows = request[key];
    if (!Array.isArray(rows) || rows.length < 1 || rows.length > MAX_ROWS) {
        throw Error(`${key}: expected a list of 1 to ${MAX_ROWS} rows`);
    }
    const signature = request.signature_name === undefined ? 'serving_default'
                                                           : request.signature_name;
    if (typeof signature !== 'string') {
        throw Error('signature_name: expected a string');
    }
    // Bytes that are no tf.Example are an error of the whole batch.
    if (signature === 'serve_examples' && key === 'instances') {
        throw Error('serve_examples: expected :classify or :regress');
    }
    const dimensions = Number(r.variables.ids_dimensions);
    const written = {signature_name: signature};
    written[key] = rows.map((row, index) => {
        try {
            return checkedRow(row, signature, dimensions);
        } catch (error) {
            throw Error(`${key}[${index}]: ${error.message}`);
        }
    });
    return written;
}

function checkedRow(row, signature, dimensions) {
    if (!isObject(row) || isBase64(row)) {
        const name = ONLY_INPUT[signature] || 'text';
        return checkedValue(row, name, INPUTS[name], dimensions);
    }
    const written = {};
    Object.keys(row).forEach(name => {
        if (!INPUTS.hasOwnProperty(name)) {
            throw Error('the name of an input is unknown');
        }
        written[name] = checkedValue(row[name], name, INPUTS[name], dimensions);
    });
    return written;
}

function checkedValue(value, name, input, dimensions) {
    const rank = input[1] === null ? dimensions : input[1];
    if (!isValue(value, input[0], rank)) {
        throw Error(`${name}: expected ${'a list of '.repeat(rank)}${input[0]}${rank ? 's' : ''}`);
    }
    return value;
}

function isValue(value, type, rank) {
    if (rank > 0) {
        return Array.isArray(value) && value.length > 0
            && value.every(element => isValue(element, type, rank - 1));
    }
    return typeof value === type || (type === 'string' && isBase64(value));
}

// Bytes that are not UTF-8
function isBase64(value) {
    return isObject(value) && typeof value.b64 === 'string' && Object.keys(value).length === 1;
}

function isObject(value) {
    return typeof value === 'object' && value !== null && !Array.isArray(value);
}

export default {check};
