# edgescope: completion of verbs, flags and their known values
function __edgescope_at
    set -l words (commandline -opc)
    set -e words[1]
    set -l command
    for word in $words
        switch "$command $word"
            case @commands@
                set command (string trim "$command $word")
        end
    end
    test "$command" = "$argv"
end

function __edgescope_results
    set -l folder edgescope-results
    if set -q EDGESCOPE_STORE
        set folder $EDGESCOPE_STORE
    end
    set -l words (commandline -opc)
    if set -l place (contains -i -- --store $words)
        set folder $words[(math $place + 1)]
    end
    echo latest
    for name in $folder/*/*-*-*/
        string replace -r '^.*-([^-/]+)/$' '$1' $name
    end
end

function __edgescope_offer
    complete -c edgescope -n "__edgescope_at $argv[1]" $argv[2..-1]
end

set -g __edgescope_models @models@
@lines@
