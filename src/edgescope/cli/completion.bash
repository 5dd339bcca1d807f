# edgescope: completion of verbs, flags and their known values
_edgescope_results() {
    local folder="${EDGESCOPE_STORE:-edgescope-results}" name i
    for ((i = 1; i < COMP_CWORD; i++)); do
        if [[ "${COMP_WORDS[i]}" == --store ]]; then folder="${COMP_WORDS[i + 1]}"; fi
    done
    echo latest
    for name in "$folder"/*/*-*-*/; do
        name="${name%/}"
        if [[ -d "$name" ]]; then echo "${name##*-}"; fi
    done
}

_edgescope() {
    local current="${COMP_WORDS[COMP_CWORD]}" before="${COMP_WORDS[COMP_CWORD - 1]}"
    COMPREPLY=()
    local command="" head="" offers="" word i
    local models="@models@"
    for ((i = 1; i < COMP_CWORD; i++)); do
        word="${COMP_WORDS[i]}"
        case "$command $word" in
        @commands@) command="${command:+$command }$word" ;;
        esac
    done
    if [[ "$current" == --*=* ]]; then
        before="${current%%=*}" head="${current%%=*}=" current="${current#*=}"
    elif [[ "$current" == "=" ]]; then
        current=""
    elif [[ "$before" == "=" ]]; then
        before="${COMP_WORDS[COMP_CWORD - 2]}"
    fi
    case "$command:$before" in
@values@
    esac
    if [[ -n "$offers" && "$current" == *,* ]]; then
        head="$head${current%,*}," current="${current##*,}"
    fi
    if [[ -z "$offers" ]]; then
        case "$command:$current" in
@offers@
        esac
    fi
    for word in $offers; do
        if [[ "$word" == "$current"* ]]; then COMPREPLY+=("$head$word"); fi
    done
}
complete -o default -F _edgescope edgescope
